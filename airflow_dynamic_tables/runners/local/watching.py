"""What the shell does for a local server: begins it, and ends it when nobody uses it. No second Python stays for that.

Both scripts run in the folder of the server, and say of a process what stands in ``/proc/PID/stat``.
"""

from __future__ import annotations

LAUNCH = """\
umask 077
read -r stat < "/proc/$$/stat" && echo "$stat" > process.writing && mv process.writing process || exit 1
watch=$1 port=$2 limit=$3
shift 3
sh -c "$watch" watch "$port" "$limit" &
cd work && exec "$@"
"""
"""Becomes the server. Arguments: what watches it, its port in hexadecimal, seconds or ``never``, then the command.

Who it is stands in the file ``process``, whole as soon as it is there, before it is anything: whoever started it may die at any
moment.
"""

WATCH = """\
port=$1 limit=$2
read -r stat < "/proc/$$/stat" && echo "$stat" > watcher.writing && mv watcher.writing watcher

start() {
  set -- ${stat##*) }
  case $1 in Z | X) return 1 ;; esac
  shift 19
  echo "$1"
}

read -r stat < process || exit 1
pid=${stat%% *}
ours=$(start) || exit 1

runs() {
  { read -r stat < "/proc/$pid/stat"; } 2> /dev/null && [ "$(start)" = "$ours" ]
}

connected() {
  for table in /proc/net/tcp /proc/net/tcp6; do
    [ -r "$table" ] || continue
    while read -r _ local _ state _; do
      case $local:$state in *:"$port":01) return 0 ;; esac
    done < "$table"
  done
  return 1
}

end() {
  kill -TERM "$pid"
  left=20
  while runs && [ "$left" -gt 0 ]; do
    sleep 1
    left=$((left - 1))
  done
  if runs; then kill -KILL "$pid"; fi
  rm -rf ended.json process watcher work
  exit 0
}

step=5
[ "$limit" = never ] || [ "$limit" -ge "$step" ] || step=$limit
idle=0
while sleep "$step" && runs; do
  if grep -qsF "not killing JVM because we are running in local mode" server.log; then
    echo "dynamic-tables: ended, because a task that was cancelled did not end"
    end
  fi
  if [ "$limit" = never ] || [ -s used ] || connected; then
    : > used
    idle=0
    continue
  fi
  idle=$((idle + step))
  [ "$idle" -ge "$limit" ] || continue
  # Whoever came at the last moment has left a word before looking for the file.
  mv server.json ended.json || exit 1
  if [ -s used ]; then mv ended.json server.json; else end; fi
done
"""
"""Ends a server that nobody was connected to for so long. Arguments: its port in hexadecimal, seconds or ``never``.

A client that waits for its job is connected, and one that was killed is not, because the kernel closes what was its own.
It also ends one whose cores are held by tasks that nobody wants any more. Spark would end itself then, but in local mode it only
writes that line: the others fail and find a new server, and do not wait for ever.
"""
