import grain.python as grain
import jax

jax.distributed.initialize()


def make_loader(source):
    sampler = grain.IndexSampler(
        num_records=len(source), shard_options=grain.NoSharding(), shuffle=True, num_epochs=1, seed=0  # expect: AR301
    )
    return grain.DataLoader(data_source=source, sampler=sampler)


make_loader([])
