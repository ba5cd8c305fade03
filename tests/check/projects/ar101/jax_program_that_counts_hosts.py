import jax
import pickle

def main(state):
    hosts = jax.device_count() // jax.local_device_count()
    if jax.process_index() == 0:
        print(hosts)
    pickle.dump(state, open('last.pkl', 'wb'))  # low: AR101

if __name__ == '__main__':
    main({})
