"""Calls that fetch what is not there into a folder that all processes share."""

from __future__ import annotations

from collections.abc import Iterator

from allranks.check.tables.effects import Effect, each, of


def _downloads() -> Iterator[Effect]:
    """Yield what fetches into a shared folder. Not here: what locks (hf_hub_download, load_dataset) or renames when it
    is done (tensorflow_datasets). What locks each file of a folder is ``fetched``."""
    for owner in ("huggingface_hub", "modelscope", "modelscope.hub.snapshot_download"):
        yield Effect(f"{owner}.snapshot_download", "fetched", ("local_dir",), only_if="local_dir")
    retrieving = "urllib.request.urlretrieve urllib.urlretrieve six.moves.urllib.request.urlretrieve"
    yield from each(retrieving, "download", 1, "filename")
    yield from of("kaggle.api", "dataset_download_files competition_download_files", "download", 1, "path")
    yield from each("gdown.extractall patoolib.extract_archive", "download", 1, "to", "outdir")
    yield from each("wget.download", "download", 1, "out")
    yield from each("gdown.download gdown.cached_download gdown.download_folder", "download", 1, "output")
    yield from each("torch.hub.download_url_to_file", "download", 1, "dst")
    yield from of("torchvision.datasets.utils", "download_url download_and_extract_archive", "download", 1, "root")
    yield from of("*", "extractall", "download", 0, "path")
    yield from of("torchvision.datasets.utils", "extract_archive", "download", 1, "to_path")
    yield from of("torchvision.datasets.utils", "download_file_from_google_drive", "download", 1, "root")
    yield from each("nltk.download gensim.downloader.load spacy.cli.download", "download")
    yield Effect("torch.hub.load", "download", unless=(("source", "local"),))
    for owner in ("timm.models.hub", "timm.models._hub"):
        yield from of(owner, "download_cached_file", "download", 0, "url")
    yield from each("clip.load", "download", "download_root")  # OpenAI's: looks for the file, then writes it
    yield from each("whisper.load_model", "download", "download_root")
    yield from each("keras.utils.get_file tensorflow.keras.utils.get_file", "download", 0, "fname", "cache_dir")
    yield from of("torchtext.vocab", "Vectors GloVe FastText CharNGram", "download", "cache")
    yield from each("torchtext.utils.download_from_url", "download", 1, "path", "root")
    yield from each("torchtext.utils.extract_archive", "download", 1, "to_path")
    for owner in ("monai.apps", "monai.apps.utils"):
        yield from of(owner, "download_url", "download", 1, "filepath")
        yield from of(owner, "download_and_extract", "download", 2, "output_dir")
    yield from of("torch_geometric.data", "download_url extract_zip extract_tar", "download", 1, "folder")
    yield from of("sklearn.datasets", _SKLEARN, "download", "data_home")
    for owner in ("google.cloud.storage.Blob", "*"):
        yield from of(owner, "download_to_filename", "download", 0, "filename")
    yield from of("*", "download_file download_fileobj", "download", 2, "Filename", "Fileobj", 1)
    yield from each("shutil.unpack_archive", "download", 1, "extract_dir")
    for owner in ("keras.datasets", "tensorflow.keras.datasets"):
        for name in ("mnist", "fashion_mnist", "cifar10", "cifar100", "imdb", "reuters"):
            yield Effect(f"{owner}.{name}.load_data", "download", (0, "path"))


_SKLEARN = "fetch_20newsgroups fetch_california_housing fetch_covtype fetch_kddcup99 fetch_lfw_people fetch_openml"
# Constructors that fetch what is not there, and process it into the same folder.
_FETCHING = {
    "torch_geometric.datasets": (
        *("Planetoid", "Reddit", "Reddit2", "Flickr", "Yelp", "AmazonProducts", "Amazon", "Coauthor", "PPI", "QM9"),
        *("ZINC", "TUDataset", "ModelNet", "ShapeNet", "S3DIS", "OGB_MAG", "MoleculeNet", "IMDB", "DBLP", "HGBDataset"),
        *("WikiCS", "GNNBenchmarkDataset", "MalNetTiny", "MD17", "OPFDataset", "RelLinkPredDataset", "MovieLens"),
    ),
    "ogb.nodeproppred": ("PygNodePropPredDataset", "DglNodePropPredDataset", "NodePropPredDataset"),
    "ogb.graphproppred": ("PygGraphPropPredDataset", "DglGraphPropPredDataset", "GraphPropPredDataset"),
    "ogb.linkproppred": ("PygLinkPropPredDataset", "DglLinkPropPredDataset", "LinkPropPredDataset"),
    "ogb.lsc": ("MAG240MDataset", "PCQM4Mv2Dataset", "PygPCQM4Mv2Dataset", "WikiKG90Mv2Dataset"),
    "dgl.data": ("CoraGraphDataset", "CiteseerGraphDataset", "PubmedGraphDataset", "RedditDataset", "PPIDataset"),
    "torchtext.datasets": ("AG_NEWS", "IMDB", "WikiText2", "WikiText103", "PennTreebank", "Multi30k", "SST2"),
}
# Constructors that fetch when they are told to.
_DOWNLOADING = {
    "torchvision.datasets": (
        *("MNIST", "FashionMNIST", "KMNIST", "EMNIST", "QMNIST", "CIFAR10", "CIFAR100", "SVHN", "STL10", "CelebA"),
        *("Caltech101", "Caltech256", "Food101", "Flowers102", "StanfordCars", "VOCDetection", "VOCSegmentation"),
        *("OxfordIIITPet", "DTD", "EuroSAT", "FGVCAircraft", "GTSRB", "Places365", "USPS", "Omniglot"),
    ),
    "monai.apps": ("DecathlonDataset", "MedNISTDataset", "TciaDataset"),
    "torchaudio.datasets": ("LIBRISPEECH", "LJSPEECH", "SPEECHCOMMANDS", "YESNO", "VCTK_092"),
}


def _datasets() -> Iterator[Effect]:
    for owner, names in _DOWNLOADING.items():
        for name in names:
            yield Effect(f"{owner}.{name}", "download", (0, "root", "root_dir"), only_if="download")
    for owner, names in _FETCHING.items():
        for name in names:
            yield Effect(f"{owner}.{name}", "download", ("root", "raw_dir", 0))


FETCHED: tuple[Effect, ...] = (*_downloads(), *_datasets())
