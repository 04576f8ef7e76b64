"""A small tokenizer of transformers, made here, and chat templates of both kinds."""

from pathlib import Path

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

_specials = ("<s>", "</s>", "<|user|>", "<|assistant|>", "<|system|>")
_words = ["hello", "there", "how", "are", "you", "fine", "thanks", "and", "a", "b", "c", ".", "?"]

# Plain: says what a turn is, not which tokens the assistant makes.
plain = (
    "<s>{% for m in messages %}<|{{ m.role }}|>{{ m.content }}</s>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
marked = (
    "<s>{% for m in messages %}<|{{ m.role }}|>{% if m.role == 'assistant' %}"
    "{% generation %}{{ m.content }}</s>{% endgeneration %}{% else %}{{ m.content }}</s>"
    "{% endif %}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
# Leaves out what the assistant said before its last turn, as templates drop earlier reasoning.
forgetful = (
    "<s>{% for m in messages %}<|{{ m.role }}|>"
    "{% if m.role != 'assistant' or loop.last %}{{ m.content }}{% endif %}</s>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def word_tokenizer(template: str | None = plain) -> PreTrainedTokenizerFast:
    vocabulary = {word: number for number, word in enumerate((*_specials, "[UNK]", *_words))}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made = PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<s>", eos_token="</s>", unk_token="[UNK]"
    )
    made.add_special_tokens({"additional_special_tokens": list(_specials[2:])})
    made.chat_template = template
    return made


def save_word_tokenizer(folder: Path, template: str | None = plain) -> Path:
    word_tokenizer(template).save_pretrained(folder)
    return folder
