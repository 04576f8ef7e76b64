"""Cost models in Python: from a configuration, from points, by name, or from any of these."""

import json
from pathlib import Path

import pytest
from headrace.data import CostModel
from headrace.errors import OperationError

CONFIG = {
    "hidden_size": 4,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 3,
    "intermediate_size": 5,
    "vocab_size": 7,
}


def test_a_configuration_is_a_dict_a_file_or_a_folder(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    counted = CostModel.from_shape(
        hidden=4, layers=2, heads=2, kv_heads=1, head_size=3, intermediate=5, vocabulary=7
    )
    for config in (CONFIG, tmp_path, str(tmp_path), tmp_path / "config.json"):
        assert CostModel.from_config(config) == counted
    assert CostModel.parse(str(tmp_path)) == counted


def test_a_wrong_configuration_is_named(tmp_path: Path) -> None:
    with pytest.raises(OperationError, match="the configuration: there is no field 'vocab_size'"):
        CostModel.from_config({k: v for k, v in CONFIG.items() if k != "vocab_size"})
    with pytest.raises(OperationError, match="'hidden_size' must be a whole number .* not '\"4\"'"):
        CostModel.from_config(CONFIG | {"hidden_size": "4"})
    with pytest.raises(OperationError, match="num_experts_per_tok"):
        CostModel.from_config(CONFIG | {"num_experts": 8})
    with pytest.raises(OperationError, match=f"{tmp_path}/config.json: No such file"):
        CostModel.from_config(tmp_path)
    with pytest.raises(TypeError):
        CostModel.from_config(7)


def test_points_are_fitted(tmp_path: Path) -> None:
    points = [(n, 3.0 * n * n + 2.0 * n + 5.0) for n in (1, 2, 3, 10)]
    (tmp_path / "points.csv").write_text("".join(f"{n},{cost}\n" for n, cost in points))
    for fitted in (CostModel.fit(points, True), CostModel.parse(str(tmp_path / "points.csv"))):
        assert fitted.quadratic == pytest.approx(3.0)
        assert fitted.linear == pytest.approx(2.0)
        assert fitted.per_microbatch == pytest.approx(5.0)


def test_text_names_a_preset_or_coefficients() -> None:
    assert CostModel.parse("7B") == CostModel.preset("7B")
    assert CostModel.parse("1e-9,2e-6,0.5") == CostModel(1e-9, 2e-6, 0.5)
    for text in ("13B", "1", "1,2,3,4", "a,b"):
        with pytest.raises(
            OperationError, match=f"'{text}' is no cost model.*1.5B, 7B.*config.json"
        ):
            CostModel.parse(text)


def test_it_prints_what_makes_it_again() -> None:
    model = CostModel.preset("1.5B")
    assert eval(repr(model)) == model
