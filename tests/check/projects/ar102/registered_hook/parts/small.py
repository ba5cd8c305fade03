from mmengine.hooks import Hook

class Keep(Hook):
    def after_train_iter(self, runner):
        open('out.txt', 'w').write('a')  # expect: AR102
