import jax
import pickle

if jax.process_index() == 0:
    print('begin')
pickle.dump({}, open('last.pkl', 'wb'))  # low: AR101
