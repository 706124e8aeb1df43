"""`anima demo`: the choice of a Provider, a key that stays a secret, and a plain word for a rehearsal."""

from anima.cli.demo import choose


def test_a_key_of_anthropic_is_chosen_first_and_kept_in_a_secret() -> None:
    choice = choose({"ANTHROPIC_API_KEY": "sk-a", "OPENAI_API_KEY": "sk-o"}, small_model=True)
    assert choice.provider.spec.type == "anthropic"
    assert choice.secret is not None
    assert choice.provider.spec.secret_ref is not None
    assert choice.provider.spec.secret_ref.name == choice.secret.name
    assert choice.secret.string_data[choice.provider.spec.secret_ref.key].reveal() == "sk-a"
    assert "sk-a" not in f"{choice}{choice.because}"


def test_a_key_of_openai_comes_second() -> None:
    choice = choose({"ANTHROPIC_API_KEY": "", "OPENAI_API_KEY": "sk-o"}, small_model=True)
    assert choice.provider.spec.type == "openai"


def test_without_a_key_the_small_model_answers() -> None:
    choice = choose({}, small_model=True)
    assert choice.provider.spec.type == "local"
    assert choice.secret is None
    assert "ANTHROPIC_API_KEY and OPENAI_API_KEY are not set" in choice.because


def test_a_rehearsal_is_plainly_called_one() -> None:
    choice = choose({}, small_model=False)
    assert choice.provider.spec.type == "rehearsal"
    assert "NOT a model" in choice.because
