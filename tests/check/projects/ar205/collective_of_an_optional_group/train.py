import argparse
from trainer import Trainer

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ddp", action="store_true")
    Trainer(parser.parse_args()).score(1)

if __name__ == "__main__":
    main()
