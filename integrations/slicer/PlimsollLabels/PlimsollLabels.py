"""A module of 3D Slicer: labels of a volume from a server of `plimsoll serve`."""

import os
import tempfile
import threading

import ctk
import qt
import slicer
from plimsoll_client import Cancelled, Client, PlimsollError
from slicer.ScriptedLoadableModule import (
    ScriptedLoadableModule,
    ScriptedLoadableModuleLogic,
    ScriptedLoadableModuleWidget,
)

# Milliseconds between two looks at the thread that waits for the server.
TICK = 200


class PlimsollLabels(ScriptedLoadableModule):
    """The description of the module."""

    def __init__(self, parent):
        ScriptedLoadableModule.__init__(self, parent)
        parent.title = "Plimsoll Labels"
        parent.categories = ["Segmentation"]
        parent.contributors = ["The Plimsoll project"]
        parent.helpText = "Sends a volume to a server that `plimsoll serve` started, and shows its labels as a segmentation."


class PlimsollLabelsWidget(ScriptedLoadableModuleWidget):
    """The panel of the module."""

    def setup(self):
        ScriptedLoadableModuleWidget.setup(self)
        self.logic = PlimsollLabelsLogic()
        self.request = None
        self.timer = qt.QTimer()
        self.timer.setInterval(TICK)
        self.timer.timeout.connect(self.look)

        server = ctk.ctkCollapsibleButton()
        server.text = "Server"
        self.layout.addWidget(server)
        form = qt.QFormLayout(server)
        self.address = qt.QLineEdit("http://127.0.0.1:8780")
        form.addRow("Address:", self.address)
        self.token = qt.QLineEdit()
        self.token.echoMode = qt.QLineEdit.Password
        form.addRow("Token:", self.token)
        self.authority = ctk.ctkPathLineEdit()
        self.authority.filters = ctk.ctkPathLineEdit.Files
        self.authority.toolTip = "For https: the certificate of the authority in PEM, unless the system trusts it"
        form.addRow("Authority:", self.authority)
        self.connectButton = self.button("Connect", self.onConnect, form)

        labels = ctk.ctkCollapsibleButton()
        labels.text = "Labels"
        self.layout.addWidget(labels)
        form = qt.QFormLayout(labels)
        self.model = qt.QComboBox()
        form.addRow("Model:", self.model)
        self.volume = slicer.qMRMLNodeComboBox()
        self.volume.nodeTypes = ["vtkMRMLScalarVolumeNode"]
        self.volume.addEnabled = False
        self.volume.removeEnabled = False
        self.volume.setMRMLScene(slicer.mrmlScene)
        form.addRow("Volume:", self.volume)
        self.planButton = self.button("Plan", self.onPlan, form)
        self.labelButton = self.button("Label", self.onLabel, form)
        self.cancelButton = self.button("Cancel", self.onCancel, form)
        self.message = qt.QLabel("")
        self.message.wordWrap = True
        form.addRow(self.message)
        self.layout.addStretch(1)
        self.showState()

    def cleanup(self):
        """Ends a request when the module is closed."""
        self.onCancel()
        self.timer.stop()

    def button(self, text, clicked, form):
        """Adds a button to a form."""
        button = qt.QPushButton(text)
        button.clicked.connect(clicked)
        form.addRow(button)
        return button

    def showState(self):
        """Enables the buttons that make sense now."""
        is_idle = self.request is None
        self.connectButton.enabled = is_idle
        self.planButton.enabled = self.labelButton.enabled = is_idle and self.model.count > 0
        self.cancelButton.enabled = not is_idle

    def begin(self, text, request):
        """Begins a request in another thread."""
        self.request = request
        self.message.text = text
        self.showState()
        request.start()
        self.timer.start()

    def look(self):
        """Shows the result of a request that has ended."""
        if self.request is None or self.request.is_running():
            return
        request, self.request = self.request, None
        self.timer.stop()
        self.message.text = request.finish()
        self.showState()

    def client(self):
        """The client of the server that is entered."""
        return Client(self.address.text.strip(), self.token.text.strip() or None, self.authority.currentPath or None)

    def onConnect(self):
        def show(models):
            self.logic.models = {model["name"]: model for model in models}
            self.model.clear()
            self.model.addItems(list(self.logic.models))
            return f"{len(models)} models"

        self.attempt("Connecting …", lambda client: Request(client, lambda: client.models(), show))

    def onPlan(self):
        self.attempt("Planning …", lambda client: self.logic.plan(client, self.model.currentText, self.volume.currentNode()))

    def onLabel(self):
        self.attempt("Labelling …", lambda client: self.logic.label(client, self.model.currentText, self.volume.currentNode()))

    def onCancel(self):
        if self.request is not None:
            self.request.cancel()

    def attempt(self, text, make):
        """Begins a request, or shows why it cannot be made."""
        try:
            self.begin(text, make(self.client()))
        except (PlimsollError, OSError) as error:
            self.message.text = str(error)


class PlimsollLabelsLogic(ScriptedLoadableModuleLogic):
    """Requests with nodes of the scene."""

    def __init__(self):
        ScriptedLoadableModuleLogic.__init__(self)
        # By name, as the server describes them.
        self.models = {}

    def plan(self, client, model, volume):
        """A request for the plan of a volume."""
        folder, image = self.saved(volume)

        def show(plan):
            return "needs a limit of {} MiB of {} MiB; about {:.0f} s".format(
                *[plan[name] >> 20 for name in ("needed_ram_bytes", "ram_limit_bytes")], plan["predicted_seconds"]
            )

        return Request(client, lambda: client.plan(model, image), show, folder)

    def label(self, client, model, volume):
        """A request for the labels of a volume, which become a segmentation of the scene."""
        folder, image = self.saved(volume)
        output = os.path.join(folder.name, "labels.nii.gz")

        def show(warnings):
            node = self.load(output, model, volume)
            return "; ".join([node.GetName(), *warnings])

        return Request(client, lambda: client.label(model, image, output), show, folder)

    @staticmethod
    def saved(volume):
        """Writes a volume to a file in a folder of its own. Returns both."""
        if volume is None:
            raise PlimsollError("no volume is chosen", "load one, and choose it")
        folder = tempfile.TemporaryDirectory(prefix="plimsoll-", dir=slicer.app.temporaryPath)
        image = os.path.join(folder.name, "image.nii.gz")
        if not slicer.util.saveNode(volume, image):
            folder.cleanup()
            raise PlimsollError(f"{volume.GetName()} could not be written as NIfTI", "check the disk of temporary files")
        return folder, image

    def load(self, path, model, volume):
        """Loads a label map as a segmentation with the names of the model's labels, in the geometry of the volume."""
        names = {label["value"]: label["name"] for label in self.models.get(model, {}).get("labels", [])}
        labels = slicer.util.loadLabelVolume(path)
        node = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLSegmentationNode", f"{volume.GetName()} {model}")
        node.CreateDefaultDisplayNodes()
        node.SetReferenceImageGeometryParameterFromVolumeNode(volume)
        slicer.modules.segmentations.logic().ImportLabelmapToSegmentationNode(labels, node)
        slicer.mrmlScene.RemoveNode(labels)
        segmentation = node.GetSegmentation()
        for number in range(segmentation.GetNumberOfSegments()):
            segment = segmentation.GetNthSegment(number)
            segment.SetName(names.get(segment.GetLabelValue(), segment.GetName()))
        return node


class Request:
    """A request in a thread of its own. Its result is shown by the thread of the panel."""

    def __init__(self, client, do, show, folder=None):
        self.client = client
        self.show = show
        self.folder = folder
        self.result = None
        self.error = None
        self.thread = threading.Thread(target=self.run, args=(do,), daemon=True)

    def start(self):
        self.thread.start()

    def run(self, do):
        try:
            self.result = do()
        except Exception as error:  # noqa: BLE001 (shown by the thread of the panel, whatever it is)
            self.error = error

    def is_running(self):
        return self.thread.is_alive()

    def cancel(self):
        self.client.cancel()

    def finish(self):
        """Shows the result. Returns a line about it."""
        try:
            if isinstance(self.error, Cancelled):
                return "cancelled"
            return str(self.error) if self.error is not None else self.show(self.result)
        finally:
            if self.folder is not None:
                self.folder.cleanup()
