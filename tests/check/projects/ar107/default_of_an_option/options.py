import argparse, time
def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", default="runs/" + time.strftime("%H%M%S"))
    return parser.parse_args()
