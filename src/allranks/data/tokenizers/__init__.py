"""Text to tokens, by the tokenizer that the user has."""

from allranks.data.tokenizers.detect import tokenizer as tokenizer
