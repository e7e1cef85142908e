"""`Timetable` under the name of a module before; imports are renamed by the last commit of this branch."""

from abalone.progress import Timetable as Timetable
from abalone.progress import spoken as spoken
