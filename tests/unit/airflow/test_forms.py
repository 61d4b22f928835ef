"""The fields of the forms, as Airflow validates a run; what a browser makes of them is a system test."""

from __future__ import annotations

import pytest
from airflow.sdk.definitions.param import ParamsDict
from airflow.sdk.exceptions import ParamValidationError

from onceover_airflow import forms


def validate(**given: object) -> dict[str, object]:
    """Return the form's values as a run would get them."""
    params = ParamsDict(
        {
            "flow": forms.flow_param(["a", "b"]),
            "run_length": forms.run_length_param(),
            "master": forms.master_param(),
            **forms.group_params(until="once", approve=True),
        }
    )
    params.update(given)
    return dict(params.validate())


def test_an_untouched_form_is_valid() -> None:
    """The first flow is picked; what may stay empty is nothing, and not an empty text."""
    assert validate() == {
        "flow": "a",
        "run_length": "caught-up",
        "master": None,
        "direction": "failover",
        "group": None,
        "allow_rewind": False,
        "until": "once",
        "apply": True,
        "approve": True,
    }


@pytest.mark.parametrize(
    "given",
    [
        {"flow": "c"},
        {"flow": None},
        {"run_length": "soon"},
        {"run_length": "0m"},
        {"run_length": "10"},
        {"run_length": "1000000000000000s"},
        {"until": "1000000000000000s"},
        {"run_length": "--conf"},
        {"run_length": None},
        {"master": "--conf spark.x=y"},
        {"master": "-"},
        {"master": "lokal"},
        {"master": "local[x]"},
        {"master": "127.0.0.1:7077"},
        {"master": "spark://nowhere"},
        {"until": "twice"},
        {"apply": "yes"},
    ],
)
def test_bad_form_values_are_refused(given: dict[str, object]) -> None:
    """Airflow refuses the run before a task exists."""
    with pytest.raises(ParamValidationError):
        validate(**given)


@pytest.mark.parametrize("length", ["caught-up", "forever", "10m", "90s", "1h", "2d", "500ms"])
@pytest.mark.parametrize(
    "master",
    [
        None,
        "",
        "local",
        "local[4]",
        "local[*]",
        "local[2,4]",
        "spark://127.0.0.1:7077",
        "spark://a:7077,b:7077",
        "yarn",
        "k8s://https://127.0.0.1:6443",
    ],
)
def test_good_form_values_pass(length: str, master: str | None) -> None:
    """Every documented value."""
    assert validate(flow="b", run_length=length, master=master)["run_length"] == length


def test_without_a_flow_file_the_form_still_opens_valid() -> None:
    """The run then says what is missing, and where."""
    nothing = forms.flow_param([])
    assert nothing.resolve() is None
    assert nothing.resolve("typed") == "typed"
    assert "none yet" in nothing.schema["description_md"]


def test_an_empty_field_reaches_the_task_as_an_empty_text() -> None:
    """Airflow renders nothing as the text None."""
    from jinja2 import Environment

    template = Environment(autoescape=True).from_string(forms.value("master"))
    assert template.render(params={"master": None}) == ""
    assert template.render(params={"master": "local[2]"}) == "local[2]"
