from kinds import Parted, Plain

PICK = {'a': Plain, 'b': Parted}

def make(kind):
    return PICK[kind]()
