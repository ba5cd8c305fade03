import argparse
from many import fit
from single import tune

def main():
    args = argparse.ArgumentParser().parse_args()
    if args.command == "fit":
        fit(args)
    else:
        tune(args)

if __name__ == "__main__":
    main()
