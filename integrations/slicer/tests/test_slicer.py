"""The client against a server, and the module with a stand-in for Slicer. `PLIMSOLL` names the program."""

import gzip
import json
import os
import struct
import subprocess
import sys
import tempfile
import threading
import time
import types
import unittest
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "integrations/slicer/PlimsollLabels"))
MODEL = ROOT / "oracles/total_segmentator/weights/Dataset297_TotalSegmentator_total_3mm_1559subj"
PLIMSOLL = os.environ.get("PLIMSOLL")

from plimsoll_client import Cancelled, Client, PlimsollError


def image(path, shape):
    """Writes an image of zeros at 3 mm, width, height and depth in voxels."""
    header = struct.pack("<i36x8h14xhh2x8f", 348, 3, *shape, 1, 1, 1, 1, 4, 16, 1, 3, 3, 3, 0, 0, 0, 0)
    header += struct.pack("<f2f4xB", 352, 1, 0, 2)
    header = header.ljust(252, b"\0") + struct.pack("<hh6f12f", 0, 1, *[0] * 6, 3, 0, 0, 0, 0, 3, 0, 0, 0, 0, 3, 0)
    header = header.ljust(344, b"\0") + b"n+1\0" + b"\0" * 4
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(header)
        for _ in range(shape[2]):
            file.write(bytes(2 * shape[0] * shape[1]))


@unittest.skipUnless(PLIMSOLL, "PLIMSOLL does not name the program")
class ClientTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        command = [PLIMSOLL, "serve", "--model", f"total={MODEL}", "--listen", "127.0.0.1:0", "--ram", "512MiB", "--json"]
        command += ["--scratch", cls.folder.name, "--upload-limit", "8MiB"]
        cls.server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        text = ""
        while not text.endswith("}\n"):
            line = cls.server.stdout.readline()
            assert line, "the server has ended"
            text += line
        cls.shown = json.loads(text)
        cls.small = os.path.join(cls.folder.name, "small.nii.gz")
        image(cls.small, (12, 9, 6))

    @classmethod
    def tearDownClass(cls):
        cls.server.terminate()
        cls.server.wait()
        cls.server.stdout.close()
        cls.folder.cleanup()

    def client(self):
        return Client(self.shown["url"], self.shown["token"])

    def test_models_plans_and_labels_are_received(self):
        models = self.client().models()
        self.assertEqual([model["name"] for model in models], ["total"])
        self.assertEqual(len(models[0]["labels"]), 117)
        plan = self.client().plan("total", self.small)
        self.assertLessEqual(plan["needed_ram_bytes"], plan["ram_limit_bytes"])
        output = os.path.join(self.folder.name, "labels.nii.gz")
        self.client().label("total", self.small, output)
        with gzip.open(output) as file:
            header = file.read(348)
        self.assertEqual(struct.unpack_from("<3h", header, 42), (12, 9, 6))

    def test_errors_have_the_words_of_the_server(self):
        with self.assertRaises(PlimsollError) as refused:
            Client(self.shown["url"], "wrong" * 5).models()
        self.assertEqual(refused.exception.status, 401)
        self.assertIn("Authorization", refused.exception.hint)
        # Refused before it is read, although the client sends all of it first.
        large = os.path.join(self.folder.name, "large.nii")
        with open(large, "wb") as file:
            file.truncate(64 << 20)
        with self.assertRaises(PlimsollError) as refused:
            self.client().label("total", large, os.path.join(self.folder.name, "never"))
        self.assertEqual(refused.exception.status, 413)
        self.assertFalse(os.path.exists(os.path.join(self.folder.name, "never")))
        with self.assertRaises(PlimsollError):
            Client("127.0.0.1:8780")
        with self.assertRaises(PlimsollError):
            Client("http://127.0.0.1:9").models()

    def test_a_cancelled_request_ends_on_the_server(self):
        slow = os.path.join(self.folder.name, "slow.nii.gz")
        image(slow, (300, 300, 300))
        client, ended = self.client(), []

        def label():
            try:
                client.label("total", slow, os.path.join(self.folder.name, "slow"))
            except Cancelled:
                ended.append("cancelled")

        thread = threading.Thread(target=label)
        thread.start()
        for _ in range(600):
            if self.status()["predicted_seconds"] > 0:
                break
            time.sleep(0.05)
        client.cancel()
        thread.join(60)
        self.assertEqual(ended, ["cancelled"])
        for _ in range(600):
            if self.status()["taken_places"] == 0:
                return
            time.sleep(0.05)
        self.fail(self.status())

    def status(self):
        return self.client()._json("GET", "/v1/status")

    def test_the_module_makes_a_segmentation_with_names(self):
        module, slicer = stand_in(self.small)
        logic = module.PlimsollLabelsLogic()
        client = self.client()
        logic.models = {model["name"]: model for model in client.models()}
        volume = mock.Mock(**{"GetName.return_value": "CT"})
        request = logic.label(client, "total", volume)
        request.start()
        request.thread.join(60)
        self.assertEqual(request.finish(), "CT total")
        names = [segment.SetName.call_args.args[0] for segment in slicer.segments]
        self.assertEqual(names, ["l1", "kept"])
        self.assertEqual(slicer.loaded, b"\x1f\x8b")
        self.assertFalse(os.path.exists(slicer.folder), "the files of the request are removed")
        with self.assertRaises(PlimsollError):
            logic.label(client, "total", None)


def stand_in(saved):
    """The module, imported with the functions of Slicer that it calls."""
    slicer = types.ModuleType("slicer")
    slicer.segments = [
        mock.Mock(**{"GetLabelValue.return_value": 1, "GetName.return_value": "Label_1"}),
        mock.Mock(**{"GetLabelValue.return_value": 999, "GetName.return_value": "kept"}),
    ]
    segmentation = mock.Mock(**{"GetNumberOfSegments.return_value": 2})
    segmentation.GetNthSegment.side_effect = lambda number: slicer.segments[number]

    def new_node(kind, name):
        assert kind == "vtkMRMLSegmentationNode"
        return mock.Mock(**{"GetName.return_value": name, "GetSegmentation.return_value": segmentation})

    def save(_node, path):
        slicer.folder = os.path.dirname(path)
        with open(saved, "rb") as source, open(path, "wb") as target:
            target.write(source.read())
        return True

    def load(path):
        with open(path, "rb") as file:
            slicer.loaded = file.read(2)
        return mock.Mock()

    slicer.app = types.SimpleNamespace(temporaryPath=tempfile.gettempdir())
    slicer.mrmlScene = mock.Mock()
    slicer.mrmlScene.AddNewNodeByClass.side_effect = new_node
    slicer.modules = mock.Mock()
    slicer.util = types.SimpleNamespace(saveNode=save, loadLabelVolume=load)
    base = types.ModuleType("slicer.ScriptedLoadableModule")
    for name in ("ScriptedLoadableModule", "ScriptedLoadableModuleLogic", "ScriptedLoadableModuleWidget"):
        setattr(base, name, type(name, (), {"__init__": lambda self, *_: None}))
    modules = {"slicer": slicer, "slicer.ScriptedLoadableModule": base, "ctk": mock.Mock(), "qt": mock.Mock()}
    with mock.patch.dict(sys.modules, modules):
        sys.modules.pop("PlimsollLabels", None)
        import PlimsollLabels
    return PlimsollLabels, slicer


if __name__ == "__main__":
    unittest.main()
