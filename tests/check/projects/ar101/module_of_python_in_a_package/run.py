import tools.train
