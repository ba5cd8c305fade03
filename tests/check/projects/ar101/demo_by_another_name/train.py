from start import join_all

def options():
    join_all()
    return {}

def main():
    options()

if __name__ == '__main__':
    main()
