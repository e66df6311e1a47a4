import pytest

from schemas.errors import WorkloadError
from tasks.resolve.vocabulary import tokenizer_vocabulary


@pytest.mark.parametrize(
    ("model", "size"),
    [
        ("meta-llama/Llama-2-7b-hf", 32000),
        ("meta-llama/Meta-Llama-3-70B", 128256),
        ("meta-llama/Llama-3.1-8B", 128256),
        ("meta-llama/Meta-Llama-3.2-1B", 128256),
        ("META-LLAMA/llama-3.3-70b-instruct", 128256),
        ("meta-llama/Llama-4-Scout-17B-16E", 202048),
        ("mistralai/Mixtral-8x22B-v0.1", 32000),
        ("deepseek-ai/DeepSeek-V2", 102400),
        ("deepseek-ai/DeepSeek-V2-Lite", 102400),
        ("deepseek-ai/DeepSeek-V3", 129280),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B", 151936),
        ("Qwen/Qwen2.5-7B", 152064),
        ("Qwen/Qwen2.5-3B", 151936),
        ("Qwen/Qwen3-30B-A3B", 151936),
        ("openai/gpt-oss-120b", 201088),
        ("moonshotai/Kimi-K2-Instruct", 163840),
        ("xai-org/grok-1", 131072),
        ("MiniMaxAI/MiniMax-M2.5", 200064),
        ("THUDM/glm-4-9b", 151552),
        ("gpt2", 50257),
        ("/data/models/Llama-3.1-8B", 128256),
        ("./tokenizers/DeepSeek-V3/", 129280),
        ("/data/models/my-own", None),
        ("someone/Llama-3.1-8B", None),
        ("", None),
        ("Qwen3-8B", None),
    ],
)
def test_known_tokenizers(model: str, size: int | None) -> None:
    assert tokenizer_vocabulary(model) == size


def test_the_vocabulary_follows_the_tokenizer_the_file_names(resolve) -> None:
    assert resolve().architecture.vocab_size == 128256
    swapped = {"tokenizer_model": "meta-llama/Llama-3.1-8B"}
    assert resolve(swapped, model="gpt_oss_20B").architecture.vocab_size == 128256
    assert resolve({"tokenizer_model": "Qwen/Qwen3-8B"}).architecture.vocab_size == 151936


def test_a_stated_size_wins_over_the_tokenizer(resolve) -> None:
    assert resolve({"vocab_size": 50000}).architecture.vocab_size == 50000
    padded = resolve({"padded_vocab_size": 50176})
    assert (padded.architecture.vocab_size, padded.padded_vocab_size) == (50176, 50176)
    both = resolve({"vocab_size": "50000", "padded_vocab_size": 50176})
    assert (both.architecture.vocab_size, both.padded_vocab_size) == (50000, 50176)


def test_a_tokenizer_type_may_say_it_alone(resolve) -> None:
    alone = {"tokenizer_model": None, "tokenizer_type": "GPT2BPETokenizer"}
    assert resolve(alone).architecture.vocab_size == 50257


def test_an_unknown_tokenizer_says_which_key_to_set(resolve) -> None:
    with pytest.raises(WorkloadError, match=r"unknown tokenizer 'me/mine'; set vocab_size"):
        resolve({"tokenizer_model": "me/mine"})
    with pytest.raises(WorkloadError, match="no vocabulary: set vocab_size"):
        resolve({"tokenizer_model": None, "tokenizer_type": None})


@pytest.mark.parametrize("size", [0, -1, 10**9, "many", 1.5, True])
def test_a_size_that_is_none_is_refused(resolve, size) -> None:
    with pytest.raises(WorkloadError, match="vocab_size: expected"):
        resolve({"vocab_size": size})
