def keep():
    open('x.txt', 'w')  # expect: AR102
