//! `paceline node`: one task of a cluster, whatever describes it.

use super::{
    learn_tasks::{self, RowsPart},
    node_load::conclude,
    node_part::{Part, Talk},
    node_place::{ClusterArgs, Extra, Place, place, program_version},
    staging::Staging,
    train,
    train_flags::{Checked, Flags},
    train_report::{Order, Report, Reporter, Whose, Word, Work},
    train_show::{Watcher, explain, explain_in},
};
use crate::{
    failure::{Exit, Failure, exit_of, usage},
    terminal::Terminal,
};
use anyhow::Context;
use paceline_cluster::{
    ClusterKey, Endpoint, Identity, Security, endpoint,
    session::{JOINING, SessionError, chief_of},
};
use paceline_runs::RunFolder;
use paceline_strategies as strategies;
use paceline_training::{Start, TrainError};
use std::{
    io::{self, BufRead, Write},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    time::{Duration, Instant},
};

/// How often to look whether somebody wants this task to stop, while it waits for a word.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Arguments of `paceline node`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    flags: Flags,
    /// One of the processes that `paceline train` starts; it is told everything through a pipe
    #[arg(long, hide = true, exclusive = true)]
    launched: bool,
}

/// Plays one task's part.
pub fn exec(args: &Args, terminal: &mut Terminal) -> anyhow::Result<Exit> {
    if args.launched {
        return launched(terminal);
    }
    let mut staging = Staging::default();
    let flags = train::stand_in(&args.flags, &mut staging, false)?;
    staging.tell(terminal);
    let outcome = described(args, &flags, &mut staging, terminal);
    staging.settle(outcome, terminal)
}

/// A task that something outside describes.
fn described(
    args: &Args,
    flags: &Flags,
    staging: &mut Staging,
    terminal: &mut Terminal,
) -> anyhow::Result<Exit> {
    let cancel = terminal.interrupt()?;
    let Checked { choice, resumed } = flags.check()?;
    if choice.strategy.in_process {
        let several = strategies::ALL.iter().filter(|strategy| !strategy.in_process);
        let names: Vec<&str> = several.map(|strategy| strategy.name).collect();
        return Err(usage(
            format!("strategy `{}` trains in one process, without a cluster", choice.strategy.name),
            format!("name one of several tasks with --strategy: {}", names.join(", ")),
        ));
    }
    if choice.is_sparse() {
        let before = resumed.as_ref().map_or(0, learn_tasks::servers_of);
        let extra = Extra { servers: flags.ps.unwrap_or(before), evaluator: false };
        let place = placed(args, extra, terminal)?;
        let learning = learn_tasks::at(&place, flags, resumed)?;
        return learning.take_part(&place, flags, &cancel, staging, terminal);
    }
    let is_new = resumed.is_none();
    let (mut spec, start) = match resumed {
        Some(run) => flags.resumed(run)?,
        None => (flags.fresh()?, Start::New { out: flags.out.clone() }),
    };
    // A run that goes on has the servers it had.
    let before = if is_new { 0 } else { spec.servers };
    let extra = Extra { servers: flags.ps.unwrap_or(before), evaluator: flags.evaluator };
    let place = placed(args, extra, terminal)?;
    place.fit(flags, &mut spec)?;
    let parts = train::open(&spec, terminal)?;
    paceline_training::check(&spec, &parts).map_err(explain)?;
    let talk = Talk::default();
    let heard = talk.clone();
    let strangers: endpoint::Notify = Arc::new(move |notice| heard.warn(&notice.to_string()));
    let endpoint = place.listen(strangers)?;
    let watcher = Watcher::new(terminal, None);
    let part = Part {
        own: place.own,
        tasks: &place.tasks,
        chief_address: place.chief_address.clone(),
        spec: &spec,
        parts: &parts,
        launched: false,
        cancel,
        join_timeout: flags.join_timeout.duration(),
    };
    if let (true, Start::Resume { run }) = (part.is_chief(), &start) {
        staging.claim(run.path())?;
    }
    let outcome = part.play(endpoint, &start, &watcher, Box::new(talk));
    watcher.done();
    if let (Err(TrainError::Finished { .. }), Start::Resume { run }) = (&outcome, &start) {
        return train::show_finished(run, terminal);
    }
    if outcome.is_err() {
        paceline_cluster::collective::give_up_mpi();
    }
    let known = if let Start::Resume { run } = &start { Some(run) } else { None };
    let (summary, run) = outcome.map_err(|error| explain_in(error, known))?;
    if paceline_cluster::collective::summed_by_mpi() {
        terminal.note("gradients were added up by MPI_Allreduce");
    }
    match summary {
        Some(mut summary) if part.is_chief() => {
            conclude(run.path(), &mut summary, terminal);
            train::show(
                &summary,
                &staging.there(run.path()),
                part.cancel.load(Ordering::Relaxed),
                terminal,
            )?;
        }
        Some(summary) => {
            let own = summary.workers.first().cloned().unwrap_or_default();
            terminal.data(format!(
                "{}: done, {} iterations, {} examples",
                place.own, own.iterations, own.examples
            ))?;
            terminal.json(&own)?;
        }
        None => {
            terminal.data(format!("{}: done", place.own))?;
            terminal.json(&serde_json::json!({ "task": place.own, "status": "done" }))?;
        }
    }
    Ok(Exit::Done)
}

/// Which task of which cluster this process is, said aloud.
fn placed(args: &Args, extra: Extra, terminal: &Terminal) -> anyhow::Result<Place> {
    let place = place(&args.cluster, extra)?;
    terminal.note(place.words());
    args.cluster.warn(terminal);
    Ok(place)
}

/// A task that `paceline train` started: orders come in, reports go out.
fn launched(terminal: &mut Terminal) -> anyhow::Result<Exit> {
    let cancel = terminal.interrupt()?;
    let (order, chief) = listen(&cancel)?;
    let is_chief = chief_of(order.tasks.iter().copied()) == order.task;
    let reporter = Reporter { is_chief };
    match obey(&order, &chief, cancel, reporter, terminal) {
        Ok(()) => Ok(Exit::Done),
        Err((error, whose)) => {
            let failure = error.downcast_ref::<Failure>();
            let exit = exit_of(&error).unwrap_or(Exit::Failed);
            reporter.send(&Report::Failed {
                error: format!("{error:#}"),
                hint: failure.and_then(|failure| failure.hint.clone()),
                exit: exit.code(),
                whose,
            });
            Err(error) // for this task's own log
        }
    }
}

/// Reads the order, and goes on listening on a thread. When the input ends, so does this process:
/// whoever started it is gone.
fn listen(cancel: &Arc<AtomicBool>) -> anyhow::Result<(Order, mpsc::Receiver<String>)> {
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line).context("no order came")?;
    let order = serde_json::from_str(&line).context("the order cannot be read")?;
    let (tell, chief) = mpsc::channel();
    let cancel = Arc::clone(cancel);
    std::thread::Builder::new().name("orders".into()).spawn(move || {
        for line in io::stdin().lock().lines() {
            let Ok(line) = line else { break };
            match serde_json::from_str(&line) {
                // Nobody waits for it twice.
                Ok(Word::Chief { address }) => drop(tell.send(address)),
                Ok(Word::Stop) => cancel.store(true, Ordering::Relaxed),
                Err(_) => {}
            }
        }
        orphaned();
    })?;
    Ok((order, chief))
}

/// Ends this process at once: nobody is left to tell, and training must not go on unseen.
#[allow(clippy::disallowed_methods)] // from a thread there is no other way, and nothing is lost
fn orphaned() {
    std::process::exit(i32::from(Exit::Retry.code()));
}

/// Waits until the chief has said where it is, through whoever started both.
fn address_of_chief(
    order: &Order,
    told: &mpsc::Receiver<String>,
    cancel: &AtomicBool,
) -> Result<String, SessionError> {
    let begun = Instant::now();
    while begun.elapsed().as_secs() < order.join_timeout {
        if let Ok(address) = told.recv_timeout(LOOK_EVERY) {
            return Ok(address);
        }
        if cancel.load(Ordering::Relaxed) {
            return Err(SessionError::Cancelled { me: order.task, phase: JOINING });
        }
    }
    Err(SessionError::NoChief {
        chief: chief_of(order.tasks.iter().copied()),
        address: "an address of this machine".to_owned(),
        seconds: order.join_timeout,
        reason: "it did not say where it is".to_owned(),
    })
}

/// Does what was ordered. Beside an error stands whose failure it is.
fn obey(
    order: &Order,
    chief: &mpsc::Receiver<String>,
    cancel: Arc<AtomicBool>,
    reporter: Reporter,
    terminal: &Terminal,
) -> Result<(), (anyhow::Error, Whose)> {
    let plain = |error: anyhow::Error| (error, Whose::Own);
    let key: ClusterKey =
        order.key.parse().map_err(|error: paceline_cluster::KeyError| plain(error.into()))?;
    let run = RunFolder::at(&order.run);
    let identity = Identity {
        me: order.task,
        run: run.name(),
        version: program_version(),
        plan: [0; 32], // settings are compared one by one when a task joins
        key,
        security: Security::Plain, // nothing leaves this machine
        shared_memory: true,
    };
    let strangers: endpoint::Notify = Arc::new(move |notice| {
        let text = notice.to_string();
        // For this task's own log; where that cannot be written, the terminal still has it.
        let _ = writeln!(io::stderr(), "warning: {text}");
        reporter.send(&Report::Notice { text, warning: true });
    });
    let endpoint = Endpoint::bind_with(identity, "127.0.0.1:0", strangers)
        .map_err(|error| plain(error.into()))?;
    reporter.send(&Report::Listening { address: endpoint.address().to_string() });
    let timeout = Duration::from_secs(order.join_timeout);
    let chief_address = if reporter.is_chief {
        String::new()
    } else {
        address_of_chief(order, chief, &cancel)
            .map_err(|error| (explain(error.clone().into()), Whose::of(&error)))?
    };
    let tasks = order.tasks.iter().map(|task| (*task, String::new())).collect();
    let spec = match &order.work {
        Work::Examples(spec) => spec,
        Work::Rows(spec) => {
            let part = RowsPart {
                own: order.task,
                tasks: &tasks,
                chief_address,
                spec,
                resume: order.resume,
                launched: true,
                cancel,
                join_timeout: timeout,
            };
            return part.obey(endpoint, &run, reporter);
        }
    };
    let parts = train::open(spec, terminal).map_err(plain)?;
    let part = Part {
        own: order.task,
        tasks: &tasks,
        chief_address,
        spec,
        parts: &parts,
        launched: true,
        cancel,
        join_timeout: timeout,
    };
    let known = run.clone();
    let start = if order.resume { Start::Resume { run } } else { Start::In { run } };
    match part.play(endpoint, &start, &reporter, Box::new(reporter)) {
        Ok((summary, _)) => {
            reporter.send(&Report::Done { summary: summary.map(Box::new) });
            Ok(())
        }
        Err(error) => {
            let whose = match &error {
                TrainError::Session(error) => Whose::of(error),
                _ => Whose::Own,
            };
            Err((explain_in(error, Some(&known)), whose))
        }
    }
}
