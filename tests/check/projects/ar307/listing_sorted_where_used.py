import glob
import grain.python as grain


def feed(pattern, seed):
    files = glob.glob(pattern)
    source = grain.ArrayRecordDataSource(sorted(files))
    sampler = grain.IndexSampler(len(source), shard_options=grain.ShardByJaxProcess(), shuffle=True, seed=seed)
    return grain.DataLoader(data_source=source, sampler=sampler)
