"""What Spark does for a stream, without Spark: what a batch reads is noted before it runs, and that it is done after its answer.

Its points, besides those of ``victims``: ``noted`` (what the batch reads is in the log of offsets), ``wrote`` (its files are in
the stage, its result is not), ``told`` (the worker has answered, which is not in the log of commits yet).
"""

from __future__ import annotations

import json
import sys
import time
from hashlib import sha256
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_dynamic_tables.core.refresh.plan import RefreshPlan, RefreshResult, StagedFile
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.core.streaming.stream_plans import JOB_FILE, WORKER_FILE, Answer, Ask
from tests.support.faults.steps import PREFIX


def run_stream(plan: RefreshPlan) -> None:
    """Run ``SELECT id FROM events`` until the worker wants the end."""
    if plan.stream is None or plan.sources[0].base_path is None:
        raise ValueError("no stream")
    checkpoint, folder = _path(plan.stream.checkpoint), _path(plan.stage)
    for log in ("offsets", "commits"):
        (checkpoint / log).mkdir(parents=True, exist_ok=True)
    while not _answer(folder).stop:
        offsets, commits = _numbers(checkpoint / "offsets"), _numbers(checkpoint / "commits")
        batch = max(offsets, default=-1)
        if batch < 0 or batch in commits:
            batch += 1
            seen = {name for number in offsets for name in _files_of(checkpoint, number)}
            # As Spark: a name like these is of a file that somebody still writes.
            found = Path(plan.sources[0].base_path).glob("[!._]*.json")
            new = sorted(file.name for file in found if file.name not in seen)
            if not new:
                time.sleep(0.02)
                continue
            noted = ["v1", json.dumps({"batchTimestampMs": time.time_ns() // 1_000_000}), json.dumps(new)]
            (checkpoint / "offsets" / str(batch)).write_text("\n".join(noted))
            _at("noted")
        _do(folder, checkpoint, batch)
        _at("told")
        (checkpoint / "commits" / str(batch)).touch()


def _do(folder: Path, checkpoint: Path, batch: int) -> None:
    digest = sha256((checkpoint / "offsets" / str(batch)).read_bytes()).hexdigest()
    (folder / "half").write_text(Ask(batch, digest, 0.0).to_json())
    (folder / "half").rename(folder / JOB_FILE)
    while not ((said := _answer(folder)).batch == batch and (said.is_done or said.plan)):
        _pause(said)
    if said.is_done or said.plan is None:
        return
    _write(RefreshPlan.from_json(_path(said.plan).read_text()), checkpoint, batch)
    while not ((said := _answer(folder)).batch == batch and said.is_done):
        _pause(said)


def _write(plan: RefreshPlan, checkpoint: Path, batch: int) -> None:
    source = Path(plan.sources[0].base_path or "")
    lines = [line for name in _files_of(checkpoint, batch) for line in (source / name).read_text().splitlines()]
    ids = [json.loads(line)["id"] for line in lines]
    file = _path(plan.data_location) / "part-0.parquet"
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": pa.array(ids, pa.int64())}), file)
    _at("wrote")
    staged = StagedFile(f"{plan.data_location}/part-0.parquet", file.stat().st_size)
    result = RefreshResult(plan.token, "by hand", len(ids), (staged,), (Column("id", "bigint"),))
    half = _path(f"{plan.result_location}.writing")
    half.write_text(result.to_json())
    half.rename(_path(plan.result_location))


def _pause(said: Answer) -> None:
    if said.stop:
        raise InterruptedError("the worker stopped")
    time.sleep(0.01)


def _answer(folder: Path) -> Answer:
    try:
        return Answer.from_json((folder / WORKER_FILE).read_text())
    except (FileNotFoundError, ValueError):
        return Answer()


def _numbers(log: Path) -> set[int]:
    return {int(file.name) for file in log.iterdir()}


def _files_of(checkpoint: Path, batch: int) -> list[str]:
    names: list[str] = json.loads((checkpoint / "offsets" / str(batch)).read_text().splitlines()[2])
    return names


def _path(uri: str) -> Path:
    return Path(urlsplit(uri).path)


def _at(point: str) -> None:
    sys.audit(f"{PREFIX}{point}")
