import pickle

def train(state):
    with open('last.pkl', 'wb') as file:
        pickle.dump(state, file)  # expect: AR101
