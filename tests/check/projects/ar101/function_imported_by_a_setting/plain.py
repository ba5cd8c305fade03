def save(x):
    open('x.txt', 'w')
