//! Reads the compact text form of a schedule.

use super::{Decay, Schedule, ScheduleError, Span};

pub(super) fn schedule(text: &str) -> Result<Schedule, ScheduleError> {
    let (warmup, rest) = match text.strip_prefix("warmup:") {
        Some(rest) => {
            let (length, rest) = rest.split_once('+').unwrap_or((rest, "constant"));
            (Some(span(length, "warm-up", text)?), rest)
        }
        None => (None, text),
    };
    let mut parts = rest.split(':');
    let name = parts.next().unwrap_or_default();
    let arguments: Vec<&str> = parts.collect();
    let takes = |name, wanted, counts: &[usize]| {
        if counts.contains(&arguments.len()) {
            Ok(())
        } else {
            let found = arguments.len();
            Err(ScheduleError::Arguments { name, wanted, found, text: text.to_owned() })
        }
    };
    let decay = match name {
        "constant" => {
            takes("constant", "no argument", &[0])?;
            Decay::Constant
        }
        "step" => {
            takes("step", "an interval and a factor", &[2])?;
            step(arguments[0], share(arguments[1], "factor", text)?, text)?
        }
        "cosine" => {
            takes("cosine", "at most a final share", &[0, 1])?;
            let last = arguments.first().map_or(Ok(0.0), |last| share(last, "final share", text));
            Decay::Cosine { last: last? }
        }
        _ => {
            return Err(ScheduleError::Unknown { name: name.to_owned(), text: text.to_owned() });
        }
    };
    Ok(Schedule { warmup, decay })
}

/// One length means "every so often", a comma makes it a list of milestones.
fn step(argument: &str, gamma: f64, text: &str) -> Result<Decay, ScheduleError> {
    if !argument.contains(',') {
        return Ok(Decay::Every { span: span(argument, "interval", text)?, gamma });
    }
    let listed = argument.strip_suffix(',').unwrap_or(argument);
    let milestones: Vec<Span> =
        listed.split(',').map(|one| span(one, "milestone", text)).collect::<Result<_, _>>()?;
    let rises = milestones.windows(2).all(|pair| match (pair[0], pair[1]) {
        (Span::Epochs(a), Span::Epochs(b)) => a < b,
        (Span::Steps(a), Span::Steps(b)) => a < b,
        _ => false,
    });
    if !rises {
        return Err(ScheduleError::Order { text: text.to_owned() });
    }
    Ok(Decay::At { milestones, gamma })
}

fn span(argument: &str, what: &'static str, text: &str) -> Result<Span, ScheduleError> {
    let wrong = |wanted| ScheduleError::Number {
        what,
        found: argument.to_owned(),
        wanted,
        text: text.to_owned(),
    };
    if let Some(steps) = argument.strip_suffix("steps") {
        return match steps.parse() {
            Ok(steps) if steps > 0 => Ok(Span::Steps(steps)),
            _ => Err(wrong("a whole number of steps above 0")),
        };
    }
    match argument.parse::<f64>() {
        Ok(epochs) if epochs > 0.0 && epochs.is_finite() => Ok(Span::Epochs(epochs)),
        _ => Err(wrong("a number of epochs above 0, or of steps with the suffix `steps`")),
    }
}

fn share(argument: &str, what: &'static str, text: &str) -> Result<f64, ScheduleError> {
    match argument.parse::<f64>() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err(ScheduleError::Number {
            what,
            found: argument.to_owned(),
            wanted: "between 0 and 1",
            text: text.to_owned(),
        }),
    }
}
