"""A workload's effective settings: its file over its presets over the framework's defaults."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from schemas.errors import WorkloadError
from tasks.resolve.chain import ChainLoader
from tasks.resolve.merging import Document, Origin
from tasks.resolve.notices import misspellings
from tasks.resolve.redaction import (
    SettingPath,
    as_reference,
    key_path,
    secret_paths,
    secret_references,
    texts,
    without_defaults,
    without_user,
)
from tasks.resolve.settings import Settings
from tasks.resolve.shipped import PRESETS
from tasks.resolve.sources import PresetSearch, Source, shipped
from tasks.resolve.unsupported import published_layers
from tasks.resolve.yaml_file import YamlFile

_FRAMEWORKS: Final = ("megatron",)
_DEFAULT_MODULE: Final = "pre_trainer.yaml"
_MODULE_KEYS: Final = ("framework", "config", "model", "overrides", "name")


@dataclass(frozen=True, slots=True)
class Resolved:
    """A workload's effective settings, before anything is made of them."""

    settings: Settings
    model: Source
    trainer: str
    document: dict[str, Any]
    files: dict[str, str]
    warnings: tuple[str, ...]
    name: str
    looked_at: dict[Path, bool]
    """Every file that was asked for, but those that ship, and whether it was there."""
    variables: dict[str, str | None]
    """Every environment variable that was asked for, and its value; None: not set."""


class _Watched(Mapping[str, str]):
    """An environment that remembers what was asked of it."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values
        self.asked: dict[str, str | None] = {}

    def __getitem__(self, name: str) -> str:
        self.asked[name] = self._values.get(name)
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def effective_settings(
    path: Path, *, model_path: Sequence[Path] = (), env: Mapping[str, str] | None = None
) -> Resolved:
    """The workload's settings over its model preset, module preset and the framework's defaults."""
    environment = _Watched(os.environ if env is None else env)
    source = Source(Path(path), str(path))
    search = PresetSearch(source, model_folders(model_path, environment))
    loader = ChainLoader(search, environment)
    search.looked_at[source.path] = True
    file, own = loader.read(source)
    document = loader.merge_bases(own, source, "modules")
    trainer = _trainer(document, source.label)
    here = ("modules", trainer)
    module = document.below(*here)
    _check_framework(module, document, here)
    model = search.find(
        _named(document, here, "model"), "models", _where(document, (*here, "model"))
    )
    config_name = module.values.get("config") or _DEFAULT_MODULE
    config = search.find(str(config_name), "modules", _where(document, (*here, "config")))
    defaults = framework_defaults(loader)
    settings = _layered(
        defaults,
        loader.load(model, "models"),
        loader.load(config, "modules"),
        _overrides(document, here),
    )
    own_document, secrets = _document(file, document)
    module_copy = own_document["modules"][trainer]
    module_copy |= _pinned_presets(module.values, {"model": model, "config": config}, search)
    return Resolved(
        settings=Settings(settings, source.label),
        model=model,
        trainer=trainer,
        document=own_document,
        files=dict(sorted(loader.files.items())),
        warnings=(
            *_module_misspellings(document, here),
            *misspellings(document, (*here, "overrides")),
            *_other_layers(model),
            *secrets,
        ),
        name=_name(document, path),
        looked_at=search.looked_at,
        variables=environment.asked,
    )


def _layered(
    defaults: Document, model: Document, module: Document, overrides: Document
) -> Document:
    """The four layers in order. A module's null is silence where the model says something."""
    silent = [
        key
        for key, value in module.values.items()
        if value is None and model.values.get(key) is not None
    ]
    return overrides.over(module.without(*silent).over(model.over(defaults)))


def model_folders(model_path: Sequence[Path], env: Mapping[str, str]) -> tuple[Path, ...]:
    """The folders of `--model-path`, then those of `REFOLD_MODEL_PATH`; each must be there."""
    parts = env.get("REFOLD_MODEL_PATH", "").split(os.pathsep)
    listed = [Path(part).expanduser() for part in parts if part]
    given = [Path(folder).expanduser() for folder in model_path]
    for flag, folders in (("--model-path", given), ("REFOLD_MODEL_PATH", listed)):
        for folder in folders:
            if not folder.is_dir():
                raise WorkloadError(f"{flag}: {folder}: no such folder")
    return (*given, *listed)


def framework_defaults(loader: ChainLoader) -> Document:
    """What the framework assumes where every file is silent; below all presets."""
    model = loader.load(shipped(PRESETS / "models" / "language_model.yaml"), "models")
    module = loader.load(shipped(PRESETS / "modules" / _DEFAULT_MODULE), "modules")
    return module.over(model)


def _trainer(document: Document, label: str) -> str:
    """The one key under `modules:` whose name contains "trainer"."""
    modules = document.values.get("modules")
    if not isinstance(modules, dict):
        problem = "missing" if modules is None else "expected a mapping of module names"
        near = next((key for key in document.values if key.startswith("modul")), None)
        hint = f"; did you mean modules instead of {near}?" if modules is None and near else ""
        raise WorkloadError(f"{_where(document, ('modules',), label)}: {problem}{hint}")
    trainers: list[str] = [name for name in modules if "trainer" in name]
    if len(trainers) != 1:
        found = ", ".join(trainers or modules) or "nothing"
        want = "exactly one module whose name contains 'trainer'"
        raise WorkloadError(f"{_where(document, ('modules',))}: expected {want}, found {found}")
    if not isinstance(modules[trainers[0]], dict):
        raise WorkloadError(
            f"{_where(document, ('modules', trainers[0]))}: expected a mapping with"
            " framework, config, model and overrides"
        )
    return trainers[0]


def _check_framework(module: Document, document: Document, here: tuple[str, ...]) -> None:
    framework = module.values.get("framework") or "megatron"
    if framework not in _FRAMEWORKS:
        raise WorkloadError(
            f"{_where(document, (*here, 'framework'))}: framework {framework!r:.40} is not one"
            f" Refold reads; it reads {', '.join(_FRAMEWORKS)}"
        )
    config = module.values.get("config")
    if config is not None and not isinstance(config, str):
        raise WorkloadError(f"{_where(document, (*here, 'config'))}: expected a file name")


def _named(document: Document, here: tuple[str, ...], key: str) -> str:
    """The file name at `key` of the trainer."""
    value = document.below(*here).values.get(key)
    if not isinstance(value, str) or not value.strip():
        problem = "missing" if value is None else "expected a file name"
        raise WorkloadError(f"{_where(document, (*here, key))}: {problem}")
    return value.strip()


def _overrides(document: Document, here: tuple[str, ...]) -> Document:
    overrides = document.below(*here).values.get("overrides")
    if overrides is not None and not isinstance(overrides, dict):
        where = _where(document, (*here, "overrides"))
        raise WorkloadError(f"{where}: expected a mapping of settings")
    return document.below(*here, "overrides")


def _where(document: Document, path: tuple[str, ...], label: str = "") -> str:
    """The place of `path`, or of the mapping it would stand in."""
    origin = document.origins.get(path)
    if origin is not None:
        return str(origin)
    above = [document.origins.get(path[:length]) for length in range(len(path) - 1, 0, -1)]
    nearest = next((one for one in above if one is not None), None)
    return str(
        Origin(
            nearest.label if nearest else label, ".".join(path), nearest.line if nearest else None
        )
    )


def _module_misspellings(document: Document, here: tuple[str, ...]) -> list[str]:
    """Keys beside `overrides` that are none the format has: what they set is not read."""
    return [
        f"{_where(document, (*here, key))}: not read here; settings belong under overrides"
        for key in document.below(*here).values
        if key not in _MODULE_KEYS
    ]


def _other_layers(model: Source) -> list[str]:
    """A warning for a model whose published layers are of another kind than its file's."""
    published = published_layers(model.path.name)
    if published is None or model.shipped:
        return []
    return [f"{model.label}: the model of this name has {published}; projected as the file says"]


def _name(document: Document, path: Path) -> str:
    name = document.values.get("exp_name")
    return name if isinstance(name, str) and name else Path(path).stem


def _pinned_presets(
    module: dict[str, Any], presets: dict[str, Source], search: PresetSearch
) -> dict[str, Any]:
    """The full paths of the presets that were found beside the workload.

    An overlay of the document lies in another folder and must still find them; presets of
    `--model-path` and shipped ones are found by name from anywhere.
    """
    return {
        key: str(source.path.resolve())
        for key, source in presets.items()
        if key in module and search.is_beside(source)
    }


def _document(file: YamlFile, document: Document) -> tuple[dict[str, Any], list[str]]:
    """The document an overlay starts from, without secrets, and a warning for each one left out.

    A secret that the file takes from the environment stays the reference it was.
    """
    copy = _copied(document.values)
    warnings = []
    for path, written in [*secret_references(file.document)]:
        _at(copy, path[:-1])[path[-1]] = without_defaults(written)
    for path in [*secret_paths(copy)]:
        place = _where(document, key_path(path))
        reference = as_reference(_at(file.document, path))
        holder = _at(copy, path[:-1])
        if reference is not None:
            holder[path[-1]] = reference
        else:
            del holder[path[-1]]
            warnings.append(
                f"{place}: looks like a secret, so it is left out of all that is"
                " written; name an environment variable instead"
            )
    for path, text in [*texts(copy)]:
        if (clean := without_user(text)) != text:
            _at(copy, path[:-1])[path[-1]] = clean
            warnings.append(
                f"{_where(document, key_path(path))}: holds a user name, which is *** in all that"
                " is written; name an environment variable instead"
            )
    return copy, warnings


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    return [_copied(item) for item in value] if isinstance(value, list) else value


def _at(value: Any, path: SettingPath) -> Any:
    for key in path:
        if isinstance(value, dict):
            value = value.get(key)
        elif isinstance(value, list) and isinstance(key, int) and key < len(value):
            value = value[key]
        else:
            return None
    return value
