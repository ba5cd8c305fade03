import os

if not os.path.isdir('cache'):
    os.mkdir('cache')
