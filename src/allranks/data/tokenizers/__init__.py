"""Turn text into tokens with the user's tokenizer."""

from allranks.data.tokenizers.detect import tokenizer as tokenizer
