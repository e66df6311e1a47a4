"""What Refold relies on in dspy beyond its documented interface. A new dspy is to be read first."""

import inspect
from importlib.metadata import version
from typing import Any

import pytest

from tasks.llm.answers import UNREADABLE, patient_adapter, reading_adapter
from tasks.llm.engine import load_dspy

PINNED = "3.4.1"


@pytest.fixture(scope="module")
def dspy() -> Any:
    return load_dspy()


def test_the_version_is_the_one_this_was_read_in():
    assert version("dspy") == PINNED, (
        f"constraints.txt pins dspy {PINNED}, whose rlm.py, react.py, facade.py and engine contract"
        " were read for tasks/llm; read the new ones, then raise PINNED"
    )


def test_requests_and_answers_are_turned_into_json_by_the_vendored_client(dspy: Any):
    from dspy._vendor.lm15 import serde

    for name in ("request_to_dict", "response_from_dict", "response_to_dict"):
        assert callable(getattr(serde, name)), name


def test_rlm_takes_what_it_is_given_and_asks_an_interpreter_for_no_more(dspy: Any):
    parameters = inspect.signature(dspy.RLM.__init__).parameters
    assert {"max_iters", "max_llm_calls", "tools", "sub_lm", "interpreter_factory"} <= set(
        parameters
    )
    steps: list[dict[str, Any]] = []

    class Double:
        """Answers any code with a finding, and keeps what it was given."""

        execution_instructions = "Say anything."

        def __init__(self) -> None:
            self.tools: dict[str, Any] = {}
            self.output_fields: list[dict[str, Any]] | None = None

        def start(self) -> None:
            pass

        def shutdown(self) -> None:
            steps.append({"shut down": True})

        def execute(self, code: str, variables: dict[str, Any] | None = None) -> Any:
            if any(name.startswith("__dspy") for name in self.tools):
                raise dspy.CodeExecutionError("no sub-agents")
            fields = [field["name"] for field in self.output_fields or ()]
            steps.append({"tools": set(self.tools), "fields": fields, "variables": variables})
            return dspy.FinalOutput({"found": ["#1"]})

    def look(config: dict[str, Any]) -> dict[str, Any]:
        """Looks."""
        return config

    prompts: list[str] = []

    class Model(dspy.utils.DummyLM):  # type: ignore[misc]
        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            prompts.append(str(kwargs.get("messages")))
            return super().__call__(*args, **kwargs)

    module = dspy.RLM(
        dspy.Signature({"x": (str, dspy.InputField()), "found": (list[str], dspy.OutputField())}),
        tools=[look],
        interpreter_factory=Double,
    )
    instructions = module._action_signature_for_current_factory(Double, "").instructions
    assert "Python REPL environment" in instructions
    assert "Say anything." in instructions
    assert "look(config: object)" in instructions
    assert "import dspy" not in instructions
    answers = [{"reasoning": "", "code": "1"}]
    adapter = patient_adapter(dspy)
    with dspy.context(lm=dspy.utils.DummyLM(answers, adapter=adapter), adapter=adapter):
        assert module(x="y").found == ["#1"]
    assert steps == [
        {"tools": {"llm_query", "llm_query_batched", "look"}, "fields": ["found"],
         "variables": {"x": "y"}},
        {"shut down": True},
    ]  # fmt: skip


def test_react_looks_its_tools_up_by_name(dspy: Any):
    module = dspy.ReAct("x -> y", tools=[lambda: 1])
    assert isinstance(module.tools, dict)
    assert "finish" in module.tools
    fields = set(module.react.signature.output_fields)
    assert fields == {"next_thought", "next_tool_name", "next_tool_args"}
    assert UNREADABLE not in module.react.signature.instructions


def test_adapters_parse_with_parse_and_fail_with_one_error(dspy: Any):
    signature = dspy.Signature("x -> y")
    adapter = reading_adapter(dspy)
    assert adapter.parse(signature, '{"y": "\\ud800"}') == {"y": "?"}
    for text in ("nothing", "[" * 50_000, "{}", ""):
        with pytest.raises(dspy.utils.exceptions.AdapterParseError):
            adapter.parse(signature, text)
