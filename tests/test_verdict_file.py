import json

import pytest

from rankscope_analyzers import cli
from suite_jobs import fault, made


def write(folder, simulated, **meta):
    folder.mkdir(parents=True)
    (folder / "meta.json").write_text(json.dumps(simulated.meta | meta))
    simulated.records.to_parquet(folder / "records.parquet")
    return folder


def diagnosed(tmp_path, *arguments):
    out = tmp_path / "out.json"
    code = cli.main(["diagnose", "--verdicts", str(out), *map(str, arguments)])
    return code, json.loads(out.read_text())["jobs"] if out.exists() else None


def test_the_file_holds_what_the_trace_contract_asks_for(tmp_path):
    folder = write(tmp_path / "a", made(fault("gpu_compute", "gpu", 1.5, last=130), steps=140))
    code, jobs = diagnosed(tmp_path, "--trace", folder, "--workers", 1)
    (verdict,) = jobs["job-a"]["verdicts"]
    wanted = {"class", "detected_at_unix", "ranks", "pp_stage", "confidence", "lost_fraction"}
    assert code == 0
    assert set(verdict) == wanted
    assert (verdict["class"], verdict["ranks"][0]) == ("gpu_compute", 13)


def test_several_processes_give_what_one_gives(tmp_path):
    for name, kind in (("a", "gpu_compute"), ("b", "data_loader")):
        subtype = "gpu" if kind == "gpu_compute" else "rank"
        write(
            tmp_path / "all" / name, made(fault(kind, subtype, 1.5, last=130), steps=140), job=name
        )
    one = diagnosed(tmp_path, "--trace", tmp_path / "all", "--workers", 1)
    assert diagnosed(tmp_path, "--trace", tmp_path / "all", "--workers", 2) == one


def test_a_trace_that_cannot_be_read_costs_only_itself(tmp_path, capsys):
    write(tmp_path / "all" / "good", made(steps=60))
    broken = tmp_path / "all" / "broken"
    broken.mkdir()
    (broken / "records.csv").write_text("step,rank\n1,0\n")
    code, jobs = diagnosed(tmp_path, "--trace", tmp_path / "all", "--workers", 1)
    assert (code, list(jobs)) == (1, ["job-a"])
    assert "lack the columns" in capsys.readouterr().err


def test_records_that_were_left_out_are_reported(tmp_path, capsys):
    simulated = made(steps=60)
    simulated.records.loc[3, "compute_seconds"] = -1.0
    write(tmp_path / "a", simulated)
    assert diagnosed(tmp_path, "--trace", tmp_path / "a")[0] == 0
    assert (
        "records.parquet: 1 negative record was left out, the first in row"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--agent", "127.0.0.1:1"], "--verdicts needs --trace"),
        (["--trace", "x", "--workers", "0"], "--workers takes a number of at least 1, not 0"),
        (["--trace", "x", "--job", "a"], "leave out --job"),
    ],
)
def test_a_wrong_option_is_one_sentence(tmp_path, arguments, complaint, capsys):
    assert diagnosed(tmp_path, *arguments) == (1, None)
    assert complaint in capsys.readouterr().err
