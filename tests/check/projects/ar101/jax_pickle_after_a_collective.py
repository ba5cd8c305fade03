import jax
from jax.experimental import multihost_utils
import pickle

if jax.process_index() == 0:
    print('begin')
multihost_utils.sync_global_devices('begin')
pickle.dump({}, open('last.pkl', 'wb'))  # expect: AR101
