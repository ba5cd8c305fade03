import os

if not os.path.exists("logs"):
    os.makedirs("logs")  # expect: AR108
