from pathlib import Path

from tasks.resolve import classify, render_markdown, workload_files


def write(folder: Path, name: str, model: str, overrides: str = "{}") -> None:
    folder.mkdir(exist_ok=True)
    text = f"modules:\n  pre_trainer:\n    model: {model}\n    overrides: {overrides}\n"
    (folder / name).write_text(text)


def test_every_file_is_a_row_whatever_becomes_of_it(tmp_path: Path) -> None:
    folder = tmp_path / "MI355X"
    write(folder, "a.yaml", "mixtral_8x7B_v0.1.yaml")
    write(folder, "b.yaml", "mamba_370M.yaml")
    write(folder, "c.yaml", "llama3_8B.yaml", "{fp8: e4m3, fp8_recipe: mxfp8}")
    write(folder, "d.yaml", "llama3_8B.yaml", "{micro_batch_size: two}")
    (folder / "e.yaml").write_text("a: [\n")
    (folder / "notes.txt").write_text("no workload")
    rows = classify(workload_files(tmp_path), env={})
    assert [row.file for row in rows] == [f"MI355X/{name}.yaml" for name in "abcde"]
    assert [row.verdict for row in rows] == [
        "resolved",
        "unsupported",
        "refused",
        "refused",
        "refused",
    ]
    assert round(rows[0].parameters_b or 0, 1) == 46.7
    assert round(rows[0].active_b or 0, 1) == 12.9
    assert rows[1].parameters_b is None
    assert round(rows[2].parameters_b or 0, 2) == 8.03
    assert "the precision recipe mxfp8 is not modelled" in rows[2].reason
    assert rows[3].reason.startswith("d.yaml:4: modules.pre_trainer.overrides.micro_batch_size")


def test_the_table_has_a_line_per_file_and_escapes_bars(tmp_path: Path) -> None:
    write(tmp_path / "x", "a.yaml", "llama3_8B.yaml")
    write(tmp_path / "x", "b.yaml", "llama3_8B.yaml", "{pipeline_model_parallel_layout: 'Et|L'}")
    table = render_markdown(classify(workload_files(tmp_path), env={}))
    lines = table.splitlines()
    assert lines[2] == "| x/a.yaml | 8.03 | 8.03 | resolved |"
    assert len(lines) == 4
    assert lines[3].startswith("| x/b.yaml | 8.03 | 8.03 | refused: b.yaml:4: ")
    assert "the layout has 1 decoder layers, num_layers is 32" in lines[3]


def test_warnings_are_kept_for_the_reader(tmp_path: Path) -> None:
    write(tmp_path / "x", "a.yaml", "llama3_8B.yaml", "{seq_len: 5}")
    (row,) = classify(workload_files(tmp_path), env={})
    assert "did you mean seq_length" in row.warnings[0]
