"""A small byte-level BPE tokenizer with Qwen3's chat markers and thinking tags."""

from collections.abc import Iterable, Sequence

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

PAD, END, START = "<|endoftext|>", "<|im_end|>", "<|im_start|>"
THINK = ("<think>", "</think>")
CHAT_PIECES = ("user\n", "assistant\n", "\n\n")
"""What the template repeats in every prompt, each one token."""

CHAT_TEMPLATE = """\
{%- for message in messages -%}
{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<|im_start|>assistant\\n' -}}
{%- if enable_thinking is defined and enable_thinking is false -%}
{{- '<think>\\n\\n</think>\\n\\n' -}}
{%- endif -%}
{%- endif -%}
"""
"""Qwen3's form. Unlike Qwen3's own template it strips no thinking from earlier turns."""


def build_tokenizer(
    texts: Iterable[str],
    vocab_size: int,
    phrases: Sequence[str] = (),
    syllables: Sequence[str] = (),
) -> PreTrainedTokenizerFast:
    """Trains on `texts`; each of `phrases` (a JSON skeleton, say) becomes one token.

    A capitalised word of two or more `syllables` is cut between them, and numbers after every
    second digit. Merges learned from frequencies cut such names anywhere (` M|od|er|o`), and a
    small model copies few of them; ` Mo|de|ro` begins with a piece that says more.
    Every text round-trips, since the alphabet is all 256 bytes. The same texts in the same order
    give the same tokenizer.
    """
    pieces = [*CHAT_PIECES, *phrases]
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [*_name_splits(syllables), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    bpe.decoder = decoders.ByteLevel()
    specials = [PAD, START, END]
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - len(THINK) - len(pieces),
        special_tokens=specials,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    bpe.train_from_iterator(texts, trainer)
    bpe.add_tokens([AddedToken(text, normalized=False) for text in (*THINK, *pieces)])
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        pad_token=PAD,
        eos_token=END,
        additional_special_tokens=[START],
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
        model_max_length=4096,
    )


def _name_splits(syllables: Sequence[str]) -> list[pre_tokenizers.PreTokenizer]:
    numbers = pre_tokenizers.Split(Regex(" ?[0-9]{1,2}"), "isolated")
    if not syllables:
        return [numbers]
    longest = sorted(syllables, key=lambda syllable: (-len(syllable), syllable))
    any_of = f"(?:{'|'.join(longest)})"
    first = f"(?:{'|'.join(syllable.capitalize() for syllable in longest)})"
    name = f"{first}{any_of}+(?![a-z])"
    patterns = (
        f" {name}|(?<![A-Za-z ]){name}",  # a name as a whole,
        f"^ ?{first}(?={any_of}+$)",  # then its first syllable,
        f"^{any_of}(?={any_of}+$)",  # then the others
    )
    return [*(pre_tokenizers.Split(Regex(p), "isolated") for p in patterns), numbers]
