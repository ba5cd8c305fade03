import grain.python as grain
import jax

jax.distributed.initialize()
source = grain.ArrayRecordDataSource(sorted(paths()))
sampler = grain.IndexSampler(
    len(source), shard_options=grain.ShardByJaxProcess(drop_remainder=True), shuffle=True, num_epochs=1, seed=0
)
for batch in grain.DataLoader(data_source=source, sampler=sampler, operations=[grain.Batch(8, drop_remainder=True)]):
    print(batch.shape)
