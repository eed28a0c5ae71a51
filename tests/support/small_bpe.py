# SPDX-License-Identifier: Apache-2.0
"""tests/support/small_bpe.py: a byte-level BPE of some hundred tokens that a text trains, as `transformers` has one: for tests that
compare with it. ImportError where its libraries are missing."""
import tokenizers
import transformers


def train(text, vocab=290, special=("<|endoftext|>",)):
    """The last special token ends a text."""
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    made.train_from_iterator([text], tokenizers.trainers.BpeTrainer(
        vocab_size=vocab, special_tokens=list(special), initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet()))
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made, eos_token=special[-1])
