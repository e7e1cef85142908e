"""`install_hint` under the name of a module before; imports are renamed by the last commit of this branch."""

from abalone.errors import install_hint as install_hint
