from data import loader

if __name__ == "__main__":
    for batch in loader([]):
        print(batch)
