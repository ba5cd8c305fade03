import lib
if lib.boss():
    lib.mean(1)  # expect: AR201
