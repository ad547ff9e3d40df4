from waterclock.purgatory.delayed import DelayedOperation as DelayedOperation
from waterclock.purgatory.delayed import Purgatory as Purgatory
