import json

import pytest

from rankscope_analyzers import cli
from rankscope_analyzers.arguments.other_words import WORDS_OF
from simulated_jobs import Fault, Job, records


@pytest.fixture
def trace(tmp_path):
    folder = tmp_path / "job7"
    folder.mkdir()
    rows = records(Job(faults=(Fault("data", (4,), 0.4),)))
    rows.to_csv(folder / "records.csv", index=False)
    return folder


def test_json_is_one_object_with_a_verdict_per_job(trace, capsys):
    assert cli.main(["diagnose", "--trace", str(trace), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["job7"]["verdict"]["class"] == "data_loader"
    assert said["job7"]["verdict"]["ranks"] == [4]


def test_text_names_the_rank(trace, capsys):
    assert cli.main(["diagnose", "--trace", str(trace), "--no-color"]) == 0
    shown = capsys.readouterr().out
    assert "rank 4" in shown
    assert "\x1b" not in shown


def test_a_job_can_be_chosen_and_an_unknown_one_is_an_error(trace, capsys):
    assert cli.main(["diagnose", "--trace", str(trace), "--job", "job7", "--json"]) == 0
    capsys.readouterr()
    assert cli.main(["diagnose", "--trace", str(trace), "--job", "other"]) == 1
    said = "there is no job 'other' in what was read; there are: job7\n"
    assert capsys.readouterr().err == f"rankscope diagnose: {said}"


def test_other_words_lead_to_commands_that_exist_and_have_none_of_these_names():
    words = [word for words in WORDS_OF.values() for word in words.split()]
    assert not set(words) & set(cli.COMMANDS)
    assert len(words) == len(set(words))
    others = {"--help", "--version"}
    for names in WORDS_OF:
        listed = names.replace(" or ", ", ").split(", ")
        assert set(listed) <= {*cli.COMMANDS, *others} or listed[1] == "another program"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (
            ["--frobnicate"],
            "there is no option --frobnicate without a command: give COMMAND first; see",
        ),
        (
            ["--json", "jobs"],
            "there is no option --json without a command: give COMMAND first; see",
        ),
        (["--"], "COMMAND"),
        (["diagnos", "--agent", "x"], "no command 'diagnos' (did you mean diagnose?)"),
        (["Report"], "no command 'Report' (did you mean diagnose: one verdict per job, from"),
        (["run"], "(did you mean probe-path: print the directory to put on a trainer's PYTHONPATH"),
        (["check"], "no command 'check' (did you mean preflight, verify or doctor?)"),
        (["help"], "no command 'help' (did you mean --help?); see rankscope --help"),
        (["frobnicate"], "there is no command 'frobnicate'; see rankscope --help"),
        (["diagnose"], "--agent --cluster --prometheus --trace --kineto --capture is required"),
        (["diagnose", "--trace", "x", "--agent", "y"], "not allowed with"),
        (
            ["diagnose", "--trace", "x", "--frobnicate"],
            "rankscope diagnose: unrecognized arguments: --frobnicate",
        ),
        (["diagnose", "--agnet", "x"], "arguments: --agnet (did you mean --agent?)"),
        (["explain", "job-log", "--jsn", "x"], "arguments: --jsn (did you mean --json?)"),
        (["verify", "--job", "team/llm"], "arguments: --job (give JOB without it); see"),
        (["demo", "--fault", "slow-moon"], "invalid choice: 'slow-moon'"),
    ],
)
def test_a_usage_error_is_one_sentence_and_exit_code_1(arguments, complaint, capsys):
    with pytest.raises(SystemExit) as raised:
        cli.main(arguments)
    said = capsys.readouterr().err
    assert raised.value.code == 1
    assert complaint in said
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["diagnose", "--trace", "/nowhere/at/all"], "/nowhere/at/all is not a directory"),
        (["diagnose", "--agent", "127.0.0.1:1"], "agent 127.0.0.1:1 cannot be reached"),
        (["diagnose", "--agent", "127.0.0.1:1", "--since", "soon"], "an age such as 30m"),
        (["diagnose", "--agent", "127.0.0.1:1", "--hang-after", "0"], "--hang-after takes an age"),
        (["watch", "--agent", "127.0.0.1:1", "--interval", "0"], "--interval takes an age"),
        (["demo", "--rank", "9"], "the demo job has the ranks 0 to 3"),
    ],
)
def test_an_input_error_is_one_sentence_and_exit_code_1(arguments, complaint, capsys):
    assert cli.main(arguments) == 1
    said = capsys.readouterr().err
    assert complaint in said
    assert len(said.splitlines()) == 1


def test_a_trace_that_lacks_a_column_says_which(trace, capsys):
    rows = records(Job(ranks=2, steps=20)).drop(columns="step_seconds")
    rows.to_csv(trace / "records.csv", index=False)
    assert cli.main(["diagnose", "--trace", str(trace)]) == 1
    assert "lack the columns ['step_seconds']" in capsys.readouterr().err


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh"])
def test_shell_completion_knows_the_commands(shell, capsys):
    with pytest.raises(SystemExit) as raised:
        cli.main(["--print-completion", shell])
    assert raised.value.code == 0
    assert "diagnose" in capsys.readouterr().out


def test_the_version_is_that_of_the_distribution(capsys):
    with pytest.raises(SystemExit) as raised:
        cli.main(["--version"])
    assert raised.value.code == 0
    assert capsys.readouterr().out.startswith("rankscope 0.")


def test_the_probe_folder_holds_the_probe_and_its_entry_point(capsys, pytestconfig):
    assert cli.main(["probe-path"]) == 0
    folder = pytestconfig.rootpath.__class__(capsys.readouterr().out.strip())
    assert (folder / "rankscope_probe.py").is_file()
    (entry_points,) = folder.glob("*.dist-info/entry_points.txt")
    assert "[torch.backends]" in entry_points.read_text()


@pytest.mark.parametrize("option", ["--trace", "--kineto"])
def test_a_directory_that_may_not_be_read_is_one_sentence(option, tmp_path, capsys, monkeypatch):
    def refused(path):
        raise PermissionError(13, "Permission denied", str(path))

    for method in ("is_file", "iterdir"):
        monkeypatch.setattr(f"pathlib.Path.{method}", refused)  # root is refused nothing
    assert cli.main(["diagnose", option, str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"rankscope diagnose: {tmp_path}")
    assert said.endswith("cannot be read: Permission denied\n")
    assert len(said.splitlines()) == 1
