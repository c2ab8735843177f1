//! Where the time of one pass goes: parsing alone, learning alone, and what each rule and rate makes of
//! the data. `pass_speed FILE [RULE RATE]…`; with `--serve`, one measurement of learning for each line
//! `go` on standard input, as `cargo xtask versus` asks for it.

#![allow(clippy::print_stdout)] // an example talks to its caller

use paceline_batch::Batch;
use paceline_data::rows::{Block, Hashing, Input, Lines, Next, Parser, Position, formats};
use paceline_models::sparse_logistic::{RuleSettings, SparseLogistic, rules};
use paceline_training::rows::Totals;
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let serves = words.first().is_some_and(|word| word == "--serve");
    if serves {
        words.remove(0);
    }
    let path = words.first().ok_or("usage: pass_speed FILE [RULE RATE]…")?;
    let hashing = Hashing::default();
    let mut lines = Lines::new(Input::Files(vec![path.into()]), Position::default());
    let (mut block, mut batches) = (Block::default(), Vec::<Batch>::new());
    let mut parser = Parser::new(&formats::clicks::ENTRY, hashing);
    let begun = Instant::now();
    let (mut rows, mut bytes) = (0, 0);
    while lines.next(&mut block)? == Next::Block {
        parser.parse(&block.text);
        rows += parser.batch.len();
        bytes += block.text.len();
    }
    let seconds = begun.elapsed().as_secs_f64();
    let say = |text: String| {
        if !serves {
            println!("{text}");
        }
    };
    say(format!(
        "read + parse: {:.0} rows/s, {:.0} MB/s",
        rows as f64 / seconds,
        bytes as f64 / seconds / 1e6
    ));
    let mut lines = Lines::new(Input::Files(vec![path.into()]), Position::default());
    while lines.next(&mut block)? == Next::Block {
        parser.parse(&block.text);
        batches.push(parser.batch.clone());
    }
    if serves {
        return serve(&batches, rows, hashing.bits);
    }
    for pair in words[1..].chunks_exact(2) {
        let entry = rules::find(&pair[0])?;
        let mut parts = pair[1].split(':').map(str::parse);
        let mut next = |default: f32| parts.next().map_or(Ok(default), |value| value);
        let settings = RuleSettings {
            rate: next(entry.defaults.rate)?,
            beta: next(entry.defaults.beta)?,
            l1: next(0.0)?,
            l2: next(0.0)?,
        };
        let model = SparseLogistic::new(hashing.bits, entry.name, settings)?;
        let (mut logits, mut totals) = (Vec::new(), Totals::default());
        let mut rates = Vec::new();
        for _ in 0..2 {
            let begun = Instant::now();
            for batch in &batches {
                model.learn(batch, &mut logits);
                if rates.is_empty() {
                    totals.add(&logits, &batch.labels);
                }
            }
            rates.push(rows as f64 / begun.elapsed().as_secs_f64());
        }
        let metrics = totals.metrics();
        println!(
            "{} {}: loss {:.5}, auc {:.4}; learning {:.0} rows/s in the first pass, {:.0} in the second",
            pair[0], pair[1], metrics.loss, metrics.auc, rates[0], rates[1]
        );
    }
    Ok(())
}

/// Answers every `go` with the rows per second of one pass over rows in memory by a fresh model.
fn serve(batches: &[Batch], rows: usize, bits: u32) -> Result<(), Box<dyn std::error::Error>> {
    let entry = rules::find("adagrad")?;
    let pass = || -> Result<(f64, f64), Box<dyn std::error::Error>> {
        let model = SparseLogistic::new(bits, entry.name, entry.defaults)?;
        let (mut logits, mut totals) = (Vec::new(), Totals::default());
        let begun = Instant::now();
        for batch in batches {
            model.learn(batch, &mut logits);
            totals.add(&logits, &batch.labels);
        }
        Ok((rows as f64 / begun.elapsed().as_secs_f64(), totals.metrics().loss))
    };
    let (_, loss) = pass()?;
    println!("{{\"ready\": \"Paceline, adagrad, loss {loss:.4}\"}}");
    for line in std::io::stdin().lines() {
        if line?.trim() != "go" {
            break;
        }
        println!("{{\"value\": {}}}", pass()?.0);
    }
    Ok(())
}
