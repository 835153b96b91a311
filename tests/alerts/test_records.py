"""What recording rules make of a node's series, in promtool."""

from pathlib import Path

from tests.alerts.timeline import ask
from tests.promql import RULES

HOUR = 67
"""A minute, and in the hour before it are twelve evaluations of the group."""


def test_a_workload_uses_the_energy_of_its_part_of_each_gpu(tmp_path: Path) -> None:
    """Two pods share a GPU of 300 W, one of them has another of 100 W, too: an hour as the dashboard adds it up."""
    node = 'cluster="c",node="n",instance="n",job="gpuwatch"'
    joules = {"0": 300 * 60, "1": 100 * 60}
    inputs = [
        {"series": f'gpuwatch_gpu_energy_joules_total{{{node},gpu="{gpu}",uuid="{gpu}"}}', "values": f"0+{each}x{HOUR}"}
        for gpu, each in joules.items()
    ]
    inputs += [
        {
            "series": f'gpuwatch_gpu_workload_info{{{node},gpu="{gpu}",uuid="{gpu}",namespace="ns",pod="{pod}"}}',
            "values": f"1x{HOUR}",
        }
        for gpu, pod in (("0", "a"), ("0", "b"), ("1", "b"))
    ]
    record = "workload:gpuwatch_gpu_energy_joules:rate5m"
    labels = '{{cluster="c",node="n",kind="pod",namespace="ns",name="{}"}}'
    watts, kilowatt_hours = {"a": 150, "b": 250}, {"a": 0.15, "b": 0.25}
    asked = [
        {
            "expr": f"round({record}, 0.001)",
            "eval_time": f"{HOUR - 2}m",
            "exp_samples": [{"labels": labels.format(pod), "value": value} for pod, value in watts.items()],
        },
        {
            "expr": f"round(sum_over_time({record}[1h]) / 12 / 1000, 0.001)",
            "eval_time": f"{HOUR}m",
            "exp_samples": [{"labels": labels.format(pod), "value": value} for pod, value in kilowatt_hours.items()],
        },
    ]
    tests = {
        "rule_files": [str(RULES)],
        "evaluation_interval": "5m",  # promtool has one for all groups
        "group_eval_order": ["gpuwatch.workload.records", "gpuwatch.cost.records"],
        "tests": [{"interval": "1m", "input_series": inputs, "promql_expr_test": asked}],
    }
    assert ask(tests, tmp_path) == ""
