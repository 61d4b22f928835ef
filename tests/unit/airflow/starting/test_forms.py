"""The fields of the forms, as Airflow validates a run; what a browser makes of them is a system test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk.definitions.param import ParamsDict
from airflow.sdk.exceptions import ParamValidationError

from onceover_airflow.codes import AirflowCode
from onceover_airflow.errors import TaskFailed
from onceover_airflow.starting import forms
from tests.system.test_dags import DAGS


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
        {"master": "k8s://http://127.0.0.1:6443"},
        {"master": "k8s://https://somebody:secret@127.0.0.1:6443"},
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
        "k8s://127.0.0.1:6443",
        "k8s://https://rancher/k8s/clusters/c-1",
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


def kinds_of(schema: Mapping[str, Any]) -> set[str]:
    """Return the types that a field may have."""
    kind = schema["type"]
    return {kind} if isinstance(kind, str) else set(kind)


def is_bounded(schema: Mapping[str, Any]) -> bool:
    """Tell whether every value that the field takes is one that Airflow can hand on."""
    kinds = kinds_of(schema)
    if kinds & {"integer", "number"}:
        return bool(schema["minimum"] >= 0 and schema["maximum"] < 2**63)
    if "array" in kinds:
        return bool(schema["maxItems"] <= forms.MAX_TEXT) and is_bounded(schema["items"])
    return not kinds & {"string", "object"} or "enum" in schema or schema["maxLength"] <= forms.MAX_TEXT


def test_every_field_of_every_form_has_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """One number beyond 64 bits ends Airflow's DAG processor, and with it every flow's next run."""
    monkeypatch.delenv("ONCEOVER_FLOWS", raising=False)
    bag = DagBag(DAGS, collect_dags=True)
    fields = {f"{dag.dag_id}.{name}": dag.params.get_param(name).schema
              for dag in bag.dags.values() for name in dag.params}  # fmt: skip
    assert len(fields) > 20
    assert [name for name, schema in fields.items() if not is_bounded(schema)] == []


def test_a_task_takes_a_flow_whose_file_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own words say so; Airflow's were a dump of the form, tried again for days, and told to nobody."""
    monkeypatch.setattr(forms, "get_parsing_context", lambda: SimpleNamespace(task_id="plan_topics"))
    assert validate()["flow"] == "a"
    assert validate(flow="gone")["flow"] == "gone"


def checked(
    conf: Mapping[str, Any] | None,
    told: Mapping[str, Any],
    dag_id: str = "sync_topics",
    flows: Sequence[str] = ("a", "b"),
) -> None:
    """Look at what a run was started with as each of its tasks does, which is told something."""
    fields = {"flow": forms.flow_param(flows), "apply": forms.apply_param()}
    dag = SimpleNamespace(dag_id=dag_id, params=ParamsDict(fields))
    params = {**dag.params.dump(), **told}
    context: Any = {"dag": dag, "dag_run": SimpleNamespace(conf=conf), "params": params}
    forms.check_conf(context)


def refused_code(conf: Mapping[str, Any] | None, told: Mapping[str, Any]) -> tuple[object, str]:
    """Return why a run is refused: the code and the text."""
    with pytest.raises(TaskFailed) as refused:
        checked(conf, told)
    return getattr(refused.value.__cause__, "code", None), str(refused.value)


@pytest.mark.parametrize("conf", [{"flow": "b"}, {"flow": "b", "apply": False, "openlineage": {}}])
def test_a_run_does_what_its_form_says(conf: Mapping[str, Any]) -> None:
    """And one that another DAG has started where lineage is on, of which Airflow says so there."""
    checked(conf, conf)


@pytest.mark.parametrize("conf", [None, {}, {"apply": False}])
@pytest.mark.parametrize("task", [None, "plan_topics"])
def test_a_run_that_names_none_of_several_flows_is_refused(
    monkeypatch: pytest.MonkeyPatch, conf: Mapping[str, Any] | None, task: str | None
) -> None:
    """Each of its tasks would take the first one that there is by then, a try of months later, too."""
    monkeypatch.setattr(forms, "get_parsing_context", lambda: SimpleNamespace(task_id=task))
    code, text = refused_code(conf, conf or {})
    assert code == AirflowCode.NOT_NAMED
    assert '"flow"' in text
    checked(conf, conf or {}, dag_id="replicate_nightly")
    checked(conf, conf or {}, flows=["a"])


def test_a_field_that_the_form_does_not_have_ends_the_run() -> None:
    """Somebody wanted a plan, and the field that asks for it stays at its default: it would be done."""
    conf = {"flow": "b", "aply": False}
    code, text = refused_code(conf, conf)
    assert code == AirflowCode.NOT_A_FIELD
    assert 'seen: aply; to resolve: did you mean "apply"? Then start the DAG again' in text


def test_a_form_that_airflow_leaves_out_ends_the_run() -> None:
    """Where an administrator has it so, every run would be of the first flow."""
    code, text = refused_code({"flow": "b", "apply": False}, {})
    assert code == AirflowCode.CONF_IGNORED
    assert "flow, apply" in text


def test_every_task_of_every_dag_looks_at_what_its_run_was_started_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whichever comes first, and whichever is cleared."""
    monkeypatch.delenv("ONCEOVER_FLOWS", raising=False)
    bag = DagBag(DAGS, collect_dags=True)
    tasks: list[Any] = [each for dag in bag.dags.values() for each in dag.tasks]
    assert len(tasks) > 30
    assert [each for each in tasks if each._pre_execute_hook is not forms.check_conf] == []
