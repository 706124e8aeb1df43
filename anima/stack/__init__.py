"""The embedded stack: everything Anima needs, as child processes of one command.

It starts the workers as programs and never imports them, so it is as light as
the command that runs it.
"""

from anima.stack.addresses import Addresses, running_stack
from anima.stack.ports import Ports
from anima.stack.process import StackError
from anima.stack.stack import Stack

__all__ = ["Addresses", "Ports", "Stack", "StackError", "running_stack"]
