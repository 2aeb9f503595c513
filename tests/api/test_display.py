"""What notebooks and terminals show: HTML that is well formed and escaped, a tree in text, completion of names."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import numpy as np

import pnc_vol

EVIL = "<script>alert(1)</script>"


class Checked(HTMLParser):
    """Whether every element that begins ends, in order; the elements and the text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.open.append(tag)
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] != ["style"]:
            self.text += data + " "


def test_html_unfolds_and_holds_no_markup_of_the_file(tmp_path: Path) -> None:
    with pnc_vol.File(tmp_path / "a.nc", "w") as f:
        f.attrs["title"] = EVIL
        f.attrs["long"] = np.arange(100)
        f["ocean/temperature"] = np.arange(12.0).reshape(3, 4)
        f["ocean/temperature"].attrs["units"] = "K"
        f[f"bad {EVIL[:8]}"] = [EVIL]
        f["again"] = f["ocean"]
        f["soft"] = pnc_vol.SoftLink("/nowhere")
        f["kind"] = np.dtype("f4")
        f["none"] = pnc_vol.Empty("f4")
        for shown in (f, f["ocean"], *(f[name] for name in ("ocean/temperature", f"bad {EVIL[:8]}", "kind", "none"))):
            page = Checked(shown._repr_html_())
            assert "script" not in page.tags
        page = Checked(f._repr_html_())
        assert page.tags.count("details") >= 3
        for said in ("a.nc", EVIL, "(100 values)", "temperature", "float64", "the same as /ocean", "SoftLink", "units"):
            assert said in page.text
        page = Checked(f["ocean/temperature"]._repr_html_())
        assert "[0. 1. 2. 3.] ..." in page.text
        assert "96" in page.text
        dataset = f["none"]
    assert Checked(f._repr_html_()).text.strip() == "<Closed NetCDF file>"
    assert "Closed" in dataset._repr_html_()


def test_attributes_keep_their_shape_and_types_have_words(tmp_path: Path) -> None:
    with pnc_vol.File(tmp_path / "a.nc", "w") as f:
        f.attrs["small"], f.attrs["large"] = [[1, 2, 3], [4, 5, 6]], np.zeros((3, 4))
        f["rows"] = np.zeros(3, [("a", "i4"), ("b", "f8")])
        f.create_dataset("texts", data=["a", "b"], dtype=pnc_vol.string_dtype())
        f["links"] = np.array([f["rows"].ref], dtype=pnc_vol.ref_dtype)
        f["bytes"] = np.zeros(2, "V12")
        page = Checked(f._repr_html_()).text
        assert "[[1, 2, 3], [4, 5, 6]]" in page
        assert "values of shape (3, 4)" in page
        for name, words in {"rows": "compound(a, b)", "texts": "string", "links": "reference"}.items():
            text = Checked(f[name]._repr_html_()).text
            assert words in text
            assert "void" not in text
            assert "object" not in text.replace("<HDF5 object reference>", "")
        f.create_dataset("tensors", (4,), "(2,3)f4")
        for text in (Checked(f["tensors"]._repr_html_()).text, f.tree()):
            assert "float32[2, 3]" in text
            assert "void" not in text
        assert "opaque[12]" in Checked(f["bytes"]._repr_html_()).text


def test_compounds_are_tables_of_their_fields(tmp_path: Path) -> None:
    rows = np.array([(n, 2.5 + n, (n, n)) for n in range(9)], [("station", "i4"), (EVIL, "f8"), ("place", "f4", 2)])
    with pnc_vol.File(tmp_path / "a.nc", "w", driver="memory") as f:
        f["rows"], f["one"] = rows, rows[3]
        f["rows"].dims[0].label = "time"
        page = Checked(f["rows"]._repr_html_())
        assert "script" not in page.tags
        # one for the facts, one for the values: a head, and 8 rows of 3 cells
        assert page.tags.count("table") == 2
        words = " ".join(page.text.split())
        assert "(time: 9) compound(station, " in words
        assert all(
            said in words for said in ("station int32", f"{EVIL} float64", "place float32[2]", "9.5", "[7. 7.]", "...")
        )
        assert "10.5" not in words
        single = Checked(f["one"]._repr_html_())
        assert single.tags.count("tr") == page.tags.count("tr") - 7
        assert "5.5" in single.text
        assert "..." not in single.text


def test_a_file_of_many_objects_is_shown_in_part(tmp_path: Path) -> None:
    with pnc_vol.File(tmp_path / "a.nc", "w", driver="memory") as f:
        for i in range(600):
            f[f"v{i}"] = 1
        assert Checked(f._repr_html_()).text.count("int64") == 500
        assert len(f.tree().splitlines()) == 500 + 2


def test_the_tree_in_text(tmp_path: Path) -> None:
    with pnc_vol.File(tmp_path / "a.nc", "w", driver="memory") as f:
        f.create_dataset("time", (2,), "f4", maxshape=(None,))
        f["g/t"] = np.zeros((2, 3), "i2")
        f["g/names"] = ["a"]
        f["time"].make_scale("time")
        f["g/t"].dims[1].label = "x\x1b[2J"
        f["z"] = f["g"]
        tree = f.tree()
        assert repr(tree) == str(tree)
        assert tree.splitlines()[1:] == [
            "├── g",
            "│   ├── names  (1) string",
            "│   └── t  (2, x\\x1b[2J: 3) int16",
            "├── time  (2*) float32",
            "└── z  the same as /g",
        ]


def test_names_are_completed(tmp_path: Path) -> None:
    with pnc_vol.File(tmp_path / "a.nc", "w", driver="memory") as f:
        f["g/h/x"] = np.zeros(2, [("a", "i4"), ("b", "f4")])
        f["y"] = 1
        f.attrs["title"] = "t"
        assert f._ipython_key_completions_() == ["g", "y", "g/h", "g/h/x"]
        assert f["g/h/x"]._ipython_key_completions_() == ["a", "b"]
        assert f.attrs._ipython_key_completions_() == ["title"]
