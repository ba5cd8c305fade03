import os

if not os.path.exists('out'):
    os.makedirs('out')
