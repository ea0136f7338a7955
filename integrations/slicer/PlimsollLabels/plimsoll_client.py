"""A client of `plimsoll serve`, of the standard library alone."""

import http.client
import json
import ssl
import threading
import urllib.parse

# The bytes that are sent and received at a time.
CHUNK = 1 << 16


class PlimsollError(Exception):
    """An error of the server or the connection: a line about the fault, and a remedy."""

    def __init__(self, error, hint, status=None):
        super().__init__(f"{error}. {hint}" if hint else error)
        self.error = error
        self.hint = hint
        self.status = status


class Cancelled(Exception):
    """The request was cancelled."""


class Client:
    """Requests to one server. Each has a connection of its own."""

    def __init__(self, address, token=None, authority=None, timeout=3600.0):
        """Takes the address as the server prints it, its token, and for TLS the file of the authority that signed its certificate."""
        parts = urllib.parse.urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/"):
            raise PlimsollError(f"{address!r} is no address of a server", "write it like http://127.0.0.1:8780")
        self._host = parts.hostname
        self._port = parts.port
        self._token = token
        self._timeout = timeout
        self._context = ssl.create_default_context(cafile=authority) if parts.scheme == "https" else None
        self._open = None
        self._lock = threading.Lock()
        self._is_cancelled = False

    def models(self):
        """Returns the models: dictionaries with `name`, `channels` and `labels`."""
        return self._json("GET", "/v1/models")["models"]

    def plan(self, model, image):
        """Returns the memory and the time that labels of an image file would take."""
        with open(image, "rb") as body:
            return self._json("POST", self._target(model, "plan"), body)

    def label(self, model, image, output, form="nifti"):
        """Writes the labels of an image file to `output`. Returns the warnings about the image."""
        with open(image, "rb") as body:
            response = self._send("POST", self._target(model, "labels") + f"?form={form}", body)
            try:
                with open(output, "wb") as file:
                    while chunk := self._guarded(lambda: response.read(CHUNK)):
                        file.write(chunk)
                return response.headers.get_all("plimsoll-warning", [])
            finally:
                self._close()

    def cancel(self):
        """Closes the connection of the present request from another thread, which ends its prediction on the server."""
        with self._lock:
            self._is_cancelled = True
            if self._open is not None and self._open.sock is not None:
                # Wakes up the thread that waits for the answer.
                try:
                    self._open.sock.shutdown(2)
                except OSError:
                    pass

    @staticmethod
    def _target(model, job):
        return f"/v1/models/{urllib.parse.quote(model, safe='')}/{job}"

    def _json(self, method, target, body=None):
        response = self._send(method, target, body)
        try:
            return json.loads(self._guarded(response.read))
        finally:
            self._close()

    def _send(self, method, target, body=None):
        """Sends a request, and returns its answer, whose connection stays open."""
        if self._context is None:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=self._timeout, blocksize=CHUNK)
        else:
            connection = http.client.HTTPSConnection(
                self._host, self._port, timeout=self._timeout, blocksize=CHUNK, context=self._context
            )
        with self._lock:
            self._open = connection
            self._is_cancelled = False
        headers = {"Connection": "close"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        if body is not None:
            body.seek(0, 2)
            headers["Content-Length"] = str(body.tell())
            body.seek(0)

        def exchange():
            try:
                connection.request(method, target, body=body, headers=headers)
            except (BrokenPipeError, ConnectionResetError):
                # A server that refuses early has an answer all the same.
                pass
            return connection.getresponse()

        response = self._guarded(exchange)
        if response.status != 200:
            text = self._guarded(response.read)
            self._close()
            raise problem(response.status, text)
        return response

    def _guarded(self, do):
        """Calls `do`, and turns errors of the connection into errors with a remedy."""
        try:
            result = do()
        except (OSError, http.client.HTTPException) as error:
            self._close()
            if self._is_cancelled:
                raise Cancelled() from None
            raise PlimsollError(f"the connection to {self._host} failed: {error}", "check address, port and server") from error
        if self._is_cancelled:
            self._close()
            raise Cancelled()
        return result

    def _close(self):
        with self._lock:
            if self._open is not None:
                self._open.close()
                self._open = None


def problem(status, text):
    """The error of an answer."""
    try:
        fields = json.loads(text)
        return PlimsollError(fields["error"], fields["hint"], status)
    except (ValueError, KeyError, TypeError):
        return PlimsollError(f"the server answered with status {status}", "check that the address is a Plimsoll server", status)
