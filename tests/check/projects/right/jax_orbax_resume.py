import jax
import orbax.checkpoint as ocp

def main(folder):
    jax.distributed.initialize()
    manager = ocp.CheckpointManager(folder, options=ocp.CheckpointManagerOptions(max_to_keep=3))
    start = 0
    latest = manager.latest_step()
    if latest is not None:
        state = manager.restore(latest)
        start = latest + 1
    else:
        state = init()
    for step in range(start, 1000):
        state = train(state)
        manager.save(step, args=ocp.args.StandardSave(state))
    manager.wait_until_finished()

if __name__ == '__main__':
    main('gs://bucket/run')
