"""Apache Kafka's tools, run one after the other in one Java virtual machine.

Rule: a tool is its main class with its arguments, standard input, output and status; only the
machine does not end with it. To start one and load Kafka's classes costs two seconds of a core, the
same tool in a machine that has run it before a tenth of that. A tool that ends by `System.exit`,
not by Kafka's `Exit`, needs a process of its own (`java_process` of conftest).
Must not know: any tool, any server.
"""

from __future__ import annotations

import logging
import threading
from typing import Any, NamedTuple, Self

from py4j.java_gateway import (
    CallbackServerParameters,
    GatewayParameters,
    JavaGateway,
    launch_gateway,
)
from py4j.protocol import Py4JJavaError

from compat_tests import peers
from compat_tests.deadlines import PROGRAM_S

UNCAUGHT = 1
"""The status that Java gives a main class that ends with an exception."""


class ToolOutput(NamedTuple):
    """What a tool leaves behind."""

    status: int
    stdout: str
    stderr: str


class ToolEnded(Exception):
    """Takes a tool from where it asks for the end of its process back to its caller."""


class ExitProcedure:
    """Kafka's `Exit.Procedure`, called in place of `System.exit`."""

    class Java:
        """What py4j asks for."""

        implements = ("org.apache.kafka.common.utils.Exit$Procedure",)

    def __init__(self) -> None:
        """Remember no status."""
        self.status: int | None = None

    def execute(self, status: int, _message: str | None) -> None:
        """Remember the first status: a tool may catch the exception and ask again."""
        if self.status is None:
            self.status = status
        raise ToolEnded(f"exit with status {status}")


class ShutdownHooks:
    """Kafka's `Exit.ShutdownHookAdder`: keeps what a tool wants to do when its process ends."""

    class Java:
        """What py4j asks for."""

        implements = ("org.apache.kafka.common.utils.Exit$ShutdownHookAdder",)

    def __init__(self) -> None:
        """Keep nothing."""
        self._hooks: list[Any] = []

    def addShutdownHook(self, _name: str, hook: Any) -> None:  # noqa: N802 - Kafka's name
        """Keep one."""
        self._hooks.append(hook)

    def run(self) -> None:
        """Do what was kept, once."""
        hooks, self._hooks = self._hooks, []
        for hook in hooks:
            hook.run()


class ToolJvm:
    """A virtual machine with the jars of Apache Kafka."""

    def __init__(self, options: tuple[str, ...] = ()) -> None:
        """Start it; it ends with this process.

        Args:
            options: of the virtual machine.
        """
        port, token = launch_gateway(
            classpath=peers.kafka_class_path(),
            javaopts=[*options, f"-Dlog4j2.configurationFile={peers.LOG_CONFIG}"],
            java_path=peers.program("java"),
            die_on_exit=True,
            daemonize_redirect=True,
            enable_auth=True,
        )
        self._gateway = JavaGateway(
            gateway_parameters=GatewayParameters(
                port=port, auth_token=token, auto_convert=True, read_timeout=PROGRAM_S
            ),
            callback_server_parameters=CallbackServerParameters(
                port=0, daemonize=True, daemonize_connections=True
            ),
        )
        logging.getLogger("py4j").setLevel(logging.CRITICAL)  # it reports every ToolEnded
        self._exit, self._hooks = ExitProcedure(), ShutdownHooks()
        self._alone = threading.Lock()
        java = self._java = self._gateway.jvm
        callbacks = self._gateway.get_callback_server()
        self._gateway.java_gateway_server.resetCallbackClient(
            self._gateway.java_gateway_server.getCallbackClient().getAddress(),
            callbacks.get_listening_port(),
        )
        # Scala's console and log4j keep the streams that they find when they are loaded.
        self._stdout, self._stderr = (java.java.io.ByteArrayOutputStream() for _ in range(2))
        java.java.lang.System.setOut(java.java.io.PrintStream(self._stdout, True))
        java.java.lang.System.setErr(java.java.io.PrintStream(self._stderr, True))
        process_end = java.org.apache.kafka.common.utils.Exit
        process_end.setExitProcedure(self._exit)
        process_end.setHaltProcedure(self._exit)
        process_end.setShutdownHookAdder(self._hooks)

    def run(self, main_class: str, *arguments: str, stdin: str = "") -> ToolOutput:
        """Run a main class to its end; one at a time."""
        with self._alone:
            self._exit.status = None
            self._stdout.reset()
            self._stderr.reset()
            java = self._java.java
            java.lang.System.setIn(java.io.ByteArrayInputStream(stdin.encode()))
            status = self._main(main_class, arguments)
            self._hooks.run()
            return ToolOutput(status, self._stdout.toString(), self._stderr.toString())

    def _main(self, main_class: str, arguments: tuple[str, ...]) -> int:
        words = self._gateway.new_array(self._java.java.lang.String, len(arguments))
        for index, word in enumerate(arguments):
            words[index] = word
        tool: Any = self._java
        for part in main_class.split("."):
            tool = getattr(tool, part)
        try:
            tool.main(words)
        except Py4JJavaError as error:
            if self._exit.status is None:
                self._java.java.lang.System.err.println(str(error))
                return UNCAUGHT
        return self._exit.status or 0

    def close(self) -> None:
        """End it."""
        self._gateway.shutdown()

    def __enter__(self) -> Self:
        """Keep it inside the context."""
        return self

    def __exit__(self, *exception: object) -> None:
        """End it."""
        self.close()
