from lib.sync import mean
from lib.ranks import boss
if boss():
    mean(1)  # expect: AR201
