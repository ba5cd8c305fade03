from lib.data import mine

for x in mine([1, 2]):
    pass
open('log.txt', 'w')  # low: AR102
